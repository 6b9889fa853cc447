// Matrix products. A large one is cut along the longer side of its result, one piece per thread; each piece is computed
// by oneDNN or a BLAS, restricted to one thread.
#include "exec/cpu/gemm.h"

#include <cblas.h>

#include <cstring>
#include <limits>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/onednn.h"

namespace orrery::exec {
namespace {

int narrow(std::int64_t value) {
  ENSURE(value >= 0 && value <= std::numeric_limits<int>::max(), "a BLAS dimension of {}", value);
  return static_cast<int>(value);
}

/// With fewer multiply-adds another thread costs more than it computes (about 20 microseconds).
constexpr std::int64_t worthwhile_products = std::int64_t{1} << 20;
/// From this many multiply-adds on, oneDNN is faster than the BLAS; below, its preparation takes longer.
constexpr std::int64_t large_products = std::int64_t{1} << 19;
/// Pieces begin at multiples of this: the widest tile of OpenBLAS's kernels.
constexpr std::int64_t tile = 16;

/// Sets rows of `c` to the bias, or adds it; the BLAS then adds the product.
void put_bias(const Kernels& kernels, const float* bias, float* c, std::int64_t rows, std::int64_t columns,
              std::int64_t ldc, bool accumulate) {
  for (std::int64_t row = 0; row < rows; ++row, c += ldc) {
    if (accumulate)
      kernels.add(c, bias, c, columns);
    else
      std::memcpy(c, bias, static_cast<std::size_t>(columns) * sizeof(float));
  }
}

}  // namespace

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  if (m * n * k >= large_products && onednn_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
    return;
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, narrow(m),
              narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void run_matmul(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m, n = op.n, k = op.k;
  if (m == 0 || n == 0) return;
  const float* a = call.input(0, m * k);
  const float* b = call.input(1, k * n);
  const float* bias = call.optional_input(2, n);
  float* c = call.output(0, m * n);
  const std::int64_t lda = op.trans_a ? m : k;
  const std::int64_t ldb = op.trans_b ? k : n;
  const float beta = op.accumulate || bias != nullptr ? 1.0F : 0.0F;

  const bool along_rows = m > n;
  const std::int64_t length = along_rows ? m : n;
  std::int64_t piece = length;
  if (machine.pool.threads() > 1 && m * n * k > worthwhile_products) {
    const std::int64_t tiles = (length + tile - 1) / tile;
    piece = (tiles + machine.pool.threads() - 1) / machine.pool.threads() * tile;
  }
  machine.pool.each(length, piece, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t row = along_rows ? begin : 0, column = along_rows ? 0 : begin;
    const std::int64_t rows = along_rows ? end - begin : m, columns = along_rows ? n : end - begin;
    float* target = c + row * n + column;
    if (bias != nullptr) put_bias(machine.kernels, bias + column, target, rows, columns, n, op.accumulate);
    gemm(op.trans_a, op.trans_b, rows, columns, k, static_cast<float>(op.scale), a + (op.trans_a ? row : row * k), lda,
         b + (op.trans_b ? column * k : column), ldb, beta, target, n);
  });
}

}  // namespace orrery::exec
