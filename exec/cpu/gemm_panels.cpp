// Matrix products whose operands are not plain fp32: panels of both factors are widened to fp32 or rounded to tf32,
// then multiplied and summed in fp32, and the result is rounded once.
#include <algorithm>
#include <optional>

#include "base/ensure.h"
#include "exec/cpu/fp8.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/panels.h"

namespace orrery::exec {
namespace {

using models::DType;

constexpr std::int64_t kPanel = 256;  // rows or columns of the result at once

}  // namespace

void run_matmul_by_panels(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m, n = op.n, k = op.k;
  if (m == 0 || n == 0) return;
  ENSURE(call.in.size() >= 2 && !call.out.empty() && call.in[0].elements >= m * k && call.in[1].elements >= k * n &&
             call.out[0].elements >= m * n,
         "matmul of {} x {} x {}", m, n, k);
  const bool biased = call.in.size() > 2 && call.in[2].data != nullptr;
  const Kernels& kernels = machine.kernels;
  std::optional<RoundedOperands> codes;
  if (models::is_fp8_product(op)) codes = round_operands(machine, call);
  const bool trans_a = op.trans_a && !codes, trans_b = op.trans_b || codes;  // codes have the inner dimension last
  const bool tf32 = op.rounded && !codes;
  const Factor factor_a = codes ? Factor{codes->a, &codes->a_values} : Factor{call.in[0], nullptr, tf32};
  const Factor factor_b = codes ? Factor{codes->b, &codes->b_values} : Factor{call.in[1], nullptr, tf32};
  const Factor result{call.out[0]}, added{biased ? call.in[2] : Operand{}};
  // Each thread takes some columns, and walks down the rows with one panel of B.
  machine.pool.each(n, kPanel, [&](std::int64_t from, std::int64_t to, int thread) {
    const std::int64_t widest = std::min(kPanel, to - from), tallest = std::min(kPanel, m);
    float* const b = machine.scratch.get(thread, widest * k + tallest * k + tallest * widest + widest);
    float* const a = b + widest * k;
    float* const c = a + tallest * k;
    float* const bias = c + tallest * widest;
    for (std::int64_t column = from; column < to; column += kPanel) {
      const std::int64_t columns = std::min(kPanel, to - column);
      if (trans_b)
        load_panel(kernels, factor_b, column * k, k, columns, k, b);
      else
        load_panel(kernels, factor_b, column, n, k, columns, b);
      if (biased) load_panel(kernels, added, column, columns, 1, columns, bias);
      for (std::int64_t row = 0; row < m; row += kPanel) {
        const std::int64_t rows = std::min(kPanel, m - row);
        if (trans_a)
          load_panel(kernels, factor_a, row, m, k, rows, a);
        else
          load_panel(kernels, factor_a, row * k, k, rows, k, a);
        if (op.accumulate) load_panel(kernels, result, row * n + column, n, rows, columns, c);
        for (std::int64_t i = 0; biased && i < rows; ++i) {
          if (op.accumulate)
            kernels.add(c + i * columns, bias, c + i * columns, columns);
          else
            std::copy_n(bias, columns, c + i * columns);
        }
        gemm(trans_a, trans_b, rows, columns, k, static_cast<float>(op.scale), a, trans_a ? rows : k, b,
             trans_b ? k : columns, op.accumulate || biased ? 1.0F : 0.0F, c, columns);
        store_panel(kernels, c, call.out[0], row * n + column, n, rows, columns);
      }
    }
  });
}

}  // namespace orrery::exec
