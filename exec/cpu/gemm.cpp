// Matrix products. A large one is cut along the longer side of its result, one piece per thread; each piece is computed
// by oneDNN or a BLAS, restricted to one thread.
#include "exec/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/onednn.h"
#include "exec/cpu/sample_blocks.h"

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

void blas_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
               std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, narrow(m),
              narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

/// OpenBLAS has kernels of their own for products of at most 10^6 (interface/gemm.c, SMALL_MATRIX_OPT), which add up in
/// another order; beyond, what it computes of an element does not depend on the numbers of rows and columns.
constexpr std::int64_t rows_alike = std::int64_t{1} << 20;

/// From this many rows on, a block of samples costs a library little more by itself than among others.
constexpr std::int64_t worthwhile_rows = 256;

/// A product over a step's samples: neither the ranks nor the threads that share it change a bit of it. Samples are
/// rows of the result, or with trans_a what it sums over.
class SampleProduct {
 public:
  SampleProduct(Machine& machine, const Call& call, const float* a, const float* b, const float* bias, float* c)
      : machine_(machine),
        op_(call.op),
        blocks_(sample_blocks(op_.batch, op_.trans_a ? op_.k : op_.m)),
        alone_(op_.m * op_.n * op_.k <= worthwhile_products),
        a_(a),
        b_(b),
        bias_(bias),
        c_(c) {}

  void run() { op_.trans_a ? sum() : rows(); }

 private:
  // Blocks of the sum have the same shape on every rank.
  void sum() {
    // Of a piece: so few that sums which wait stay in the caches, unless the products before them take much longer.
    const std::int64_t elements = std::max(std::int64_t{1} << 18, blocks_.samples << 10);
    ENSURE(!op_.trans_b && bias_ == nullptr, "a sum over samples of {} x {} x {}", op_.m, op_.n, op_.k);
    const std::int64_t m = op_.m, n = op_.n, rows = std::max(tile, elements / n / tile * tile),
                       pieces = (m + rows - 1) / rows;
    machine_.pool.each(pieces, alone_ ? pieces : 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t row = begin * rows; row < std::min(m, end * rows); row += rows) {
        const std::int64_t some = std::min(rows, m - row);
        sum_blocks(machine_, thread, blocks_, some * n, op_.accumulate, c_ + row * n,
                   [&](std::int64_t block, float* to) {
                     const std::int64_t sample = block * blocks_.samples;
                     gemm(true, false, some, n, blocks_.samples, static_cast<float>(op_.scale), a_ + sample * m + row,
                          m, b_ + sample * n, n, 0.0F, to, n);
                   });
      }
    });
  }

  // Where the BLAS treats rows alike, pieces are as few as there are threads; else a block each.
  void rows() {
    const std::int64_t products = blocks_.samples * op_.n * op_.k, threads = alone_ ? 1 : machine_.pool.threads();
    const bool alike = products > rows_alike && blocks_.samples < worthwhile_rows;
    const std::int64_t high = alike ? std::min(blocks_.count, threads) : blocks_.count,
                       wide = alike ? std::clamp<std::int64_t>(threads / high, 1, products / rows_alike) : 1;
    machine_.pool.each(high * wide, alone_ ? high * wide : 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t row = piece / wide, column = piece % wide;
        const auto from_row = [&](std::int64_t i) { return blocks_.count * i / high * blocks_.samples; };
        const auto from_column = [&](std::int64_t i) { return op_.n * i / wide; };
        rows_of({from_row(row), from_column(column), from_row(row + 1) - from_row(row),
                 from_column(column + 1) - from_column(column)},
                alike);
      }
    });
  }
  struct Piece {
    std::int64_t row, column, rows, columns;
  };
  void rows_of(const Piece& piece, bool alike) {
    const std::int64_t n = op_.n, k = op_.k;
    float* const target = c_ + piece.row * n + piece.column;
    if (bias_ != nullptr)
      put_bias(machine_.kernels, bias_ + piece.column, target, piece.rows, piece.columns, n, op_.accumulate);
    (alike ? blas_gemm : gemm)(false, op_.trans_b, piece.rows, piece.columns, k, static_cast<float>(op_.scale),
                               a_ + piece.row * k, k, b_ + (op_.trans_b ? piece.column * k : piece.column),
                               op_.trans_b ? k : n, op_.accumulate || bias_ != nullptr ? 1.0F : 0.0F, target, n);
  }

  Machine& machine_;
  const models::Op& op_;
  const SampleBlocks blocks_;
  const bool alone_;
  const float *const a_, *const b_, *const bias_;
  float* const c_;
};

}  // namespace

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  if (m * n * k >= large_products && onednn_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
    return;
  blas_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void run_matmul(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m, n = op.n, k = op.k;
  if (m == 0 || n == 0) return;
  const float* a = call.input(0, m * k);
  const float* b = call.input(1, k * n);
  const float* bias = call.optional_input(2, n);
  float* c = call.output(0, m * n);
  if (is_over_samples(op)) return SampleProduct(machine, call, a, b, bias, c).run();
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
