// The gated short convolution (models/operators/op.h has its operands). Columns are independent of each other: forward
// goes by rows, backward by runs of columns, so that a column's sums have one order whatever the number of threads.
#include <algorithm>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {

namespace {

struct GatedConv {
  GatedConv(const Call& call, std::size_t first)
      : rows(call.op.n),
        tokens(call.op.sequence),
        columns(call.op.m),
        taps(call.op.ssm.taps),
        projected(call.input(first, rows * 3 * columns)),
        weight(call.input(first + 1, columns * taps)) {
    ENSURE(rows == call.op.batch * tokens && taps > 0, "{} rows of {} x {}, {} taps", rows, call.op.batch, tokens,
           taps);
  }
  [[nodiscard]] const float* before(std::int64_t row) const { return projected + row * 3 * columns; }
  [[nodiscard]] const float* behind(std::int64_t row) const { return before(row) + columns; }
  [[nodiscard]] const float* x(std::int64_t row) const { return before(row) + 2 * columns; }
  /// Of a token's place in its sequence, the first tap that reads one.
  [[nodiscard]] std::int64_t first_tap(std::int64_t t) const { return std::max<std::int64_t>(0, taps - 1 - t); }
  std::int64_t rows, tokens, columns, taps;
  const float *projected, *weight;
};

}  // namespace

void run_gated_conv(Machine& machine, const Call& call) {
  const GatedConv c(call, 0);
  float* y = call.output(0, c.rows * c.columns);
  machine.pool.each(c.rows, rows_per_chunk(c.columns * c.taps), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* to = y + row * c.columns;
      std::fill_n(to, c.columns, 0.0F);
      for (std::int64_t k = c.first_tap(row % c.tokens); k < c.taps; ++k) {
        const std::int64_t from = row - (c.taps - 1) + k;
        const float *const b = c.before(from), *const x = c.x(from);
        for (std::int64_t i = 0; i < c.columns; ++i) to[i] += c.weight[i * c.taps + k] * b[i] * x[i];
      }
      const float* const gate = c.behind(row);
      for (std::int64_t i = 0; i < c.columns; ++i) to[i] *= gate[i];
    }
  });
}

void run_gated_conv_grad(Machine& machine, const Call& call) {
  const GatedConv c(call, 1);
  const float* dy = call.input(0, c.rows * c.columns);
  float* dprojected = call.output(0, c.rows * 3 * c.columns);
  float* dweight = call.output(1, c.columns * c.taps);
  constexpr std::int64_t kColumns = 16;  // of a chunk: a cache line of each row
  machine.pool.each(c.columns, kColumns, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const std::int64_t t = row % c.tokens;
      const float *const b = c.before(row), *const gate = c.behind(row), *const x = c.x(row);
      float* const to = dprojected + row * 3 * c.columns;
      for (std::int64_t i = first; i < last; ++i) {
        float made = 0, back = 0;  // what the convolution makes of the tokens up to t; the gradient of b x
        for (std::int64_t k = c.first_tap(t); k < c.taps; ++k) {
          const std::int64_t from = row - (c.taps - 1) + k;
          const float of_token = c.before(from)[i] * c.x(from)[i];
          made += c.weight[i * c.taps + k] * of_token;
          dweight[i * c.taps + k] += dy[row * c.columns + i] * gate[i] * of_token;
        }
        for (std::int64_t k = std::max<std::int64_t>(0, t + c.taps - c.tokens); k < c.taps; ++k) {
          const std::int64_t reader = row + (c.taps - 1) - k;
          back += c.weight[i * c.taps + k] * dy[reader * c.columns + i] * c.behind(reader)[i];
        }
        to[i] = back * x[i];
        to[c.columns + i] = dy[row * c.columns + i] * made;
        to[2 * c.columns + i] = back * b[i];
      }
    }
  });
}

}  // namespace orrery::exec
