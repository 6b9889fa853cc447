// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", as in its public code:
// github.com/KellerJordan/Muon, muon_update and zeropower_via_newtonschulz5), with Newton-Schulz in fp32.
#include <cmath>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/machine.h"
#include "exec/engine/newton_schulz.h"

namespace orrery::exec {

// As torch.lerp does: the momentum moves towards the gradient, then the gradient towards the momentum.
void run_muon_moments(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m;
  float* direction = call.output(1, m);
  machine.pool.each(m, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(direction + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
  if (clock_of(call, 2).skips) return;
  const float* gradient = call.input(0, m);
  const float coefficient = coefficient_of(call);
  float* momentum = call.output(0, m);
  const auto rest = static_cast<float>(1 - call.context.momentum);
  const ElementRange all{0, m, false, 1};
  for (const ElementRange& range : ranges_of(call, all)) {
    if (range.orthogonal == 0) continue;
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = range.begin + begin; i < range.begin + end; ++i) {
        const float g = gradient[i] * coefficient;
        momentum[i] += rest * (g - momentum[i]);
        direction[i] = momentum[i] - rest * (momentum[i] - g);
      }
    });
  }
}

namespace {

// Values of a row of the matrix that are consecutive in a piece.
struct MatrixRun {
  std::int64_t shard = 0, within = 0;  // which of the tensor rank's pieces, and where in it
  std::int64_t row = 0, column = 0, count = 0;
};

class WholeMatrix {
 public:
  explicit WholeMatrix(const models::Op& op) : op_(op) {
    ENSURE(
        op.parts.shard > 0 && op.parts.shards > 0 && op.m % op.parts.row_ways == 0 && op.n % op.parts.column_ways == 0,
        "a matrix of {} x {} in {} x {} parts", op.m, op.n, op.parts.row_ways, op.parts.column_ways);
  }
  [[nodiscard]] std::int64_t rows() const { return op_.m / op_.parts.row_ways; }
  [[nodiscard]] std::int64_t columns() const { return op_.n / op_.parts.column_ways; }
  [[nodiscard]] bool divided() const { return op_.parts.row_ways > 1 || op_.parts.column_ways > 1; }
  [[nodiscard]] bool meets(std::int64_t shard) const {
    return op_.parts.offset < (shard + 1) * op_.parts.shard &&
           shard * op_.parts.shard < op_.parts.offset + rows() * columns();
  }

  // For the part of tensor rank `rank`.
  template <class Take>
  void each_run(std::int64_t rank, const Take& take) const {
    const std::int64_t first_row = op_.parts.row_ways > 1 ? rank * rows() : 0;
    const std::int64_t first_column = op_.parts.column_ways > 1 ? rank * columns() : 0;
    for (std::int64_t row = 0; row < rows(); ++row)
      for (std::int64_t column = 0; column < columns();) {
        const std::int64_t at = op_.parts.offset + row * columns() + column;
        const std::int64_t shard = at / op_.parts.shard, within = at % op_.parts.shard;
        const std::int64_t count = std::min(columns() - column, op_.parts.shard - within);
        take(MatrixRun{shard, within, first_row + row, first_column + column, count});
        column += count;
      }
  }

 private:
  const models::Op& op_;
};

double norm_of(Machine& machine, const float* x, std::int64_t count) {
  double sum = 0;  // by chunk, in order
  for (std::int64_t at = 0; at < count; at += stream_chunk)
    sum += machine.kernels.sum_of_squares(x + at, std::min(stream_chunk, count - at));
  return std::sqrt(sum);
}

// C (m,n) = alpha A B + beta C, with A (m,k) and B (k,n), or B transposed (n,k).
struct ScaledProduct {
  std::int64_t m, n, k;
  bool trans_b;
  float alpha, beta;
};
void multiply(Machine& machine, const ScaledProduct& p, const float* a, const float* b, float* c) {
  constexpr std::int64_t kWorthwhile = std::int64_t{1} << 20, kTile = 16;
  const bool along_rows = p.m > p.n;
  const std::int64_t length = along_rows ? p.m : p.n, threads = machine.pool.threads();
  const std::int64_t tiles = (length + kTile - 1) / kTile;
  const std::int64_t piece = p.m * p.n * p.k > kWorthwhile ? (tiles + threads - 1) / threads * kTile : length;
  const std::int64_t ldb = p.trans_b ? p.k : p.n;
  machine.pool.each(length, piece, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t row = along_rows ? begin : 0, column = along_rows ? 0 : begin;
    gemm(false, p.trans_b, along_rows ? end - begin : p.m, along_rows ? p.n : end - begin, p.k, p.alpha, a + row * p.k,
         p.k, b + (p.trans_b ? column * p.k : column), ldb, p.beta, c + row * p.n + column, p.n);
  });
}

// For x (m,n), m <= n. `work` holds x itself, room for as much again, and room for two squares. Returns where the
// result is.
const float* orthogonalised(Machine& machine, float* work, std::int64_t m, std::int64_t n) {
  float *x = work, *next = work + m * n, *gram = next + m * n, *polynomial = gram + m * m;
  const auto norm = static_cast<float>(norm_of(machine, x, m * n) + NewtonSchulz::kGuard);
  for (std::int64_t i = 0; i < m * n; ++i) x[i] /= norm;
  for (int step = 0; step < models::kNewtonSchulzSteps; ++step) {
    multiply(machine, {m, m, n, true, 1, 0}, x, x, gram);
    std::memcpy(polynomial, gram, static_cast<std::size_t>(m * m) * sizeof(float));
    multiply(machine, {m, m, m, false, NewtonSchulz::kQuintic, NewtonSchulz::kCubic}, gram, gram, polynomial);
    std::memcpy(next, x, static_cast<std::size_t>(m * n) * sizeof(float));
    multiply(machine, {m, n, m, false, 1, NewtonSchulz::kLinear}, polynomial, x, next);
    std::swap(x, next);
  }
  return x;
}

}  // namespace

void run_newton_schulz(Machine& machine, const Call& call) {
  const models::Op& op = call.op;
  const WholeMatrix matrix(op);
  const std::int64_t piece = op.parts.shard, own = op.parts.shards > 1 ? call.context.shard : 0;
  if (!matrix.meets(own)) return;
  const std::int64_t ranks = call.in[0].elements / (piece * op.parts.shards);
  ENSURE(ranks >= std::max(op.parts.row_ways, op.parts.column_ways) && own < op.parts.shards,
         "directions of {} tensor ranks, shard {} of {}", ranks, own, op.parts.shards);
  const float* pieces = call.input(0, ranks * op.parts.shards * piece);
  const std::int64_t shorter = std::min(op.m, op.n);
  float* work = call.output(1, 2 * op.m * op.n + 2 * shorter * shorter);
  const bool tall = op.m > op.n;  // computed transposed
  const std::int64_t row_stride = tall ? 1 : op.n, column_stride = tall ? op.m : 1;
  for (std::int64_t rank = 0; rank < (matrix.divided() ? ranks : 1); ++rank)
    matrix.each_run(rank, [&](const MatrixRun& run) {
      const float* from = pieces + (run.shard * ranks + rank) * piece + run.within;
      float* to = work + run.row * row_stride + run.column * column_stride;
      for (std::int64_t i = 0; i < run.count; ++i) to[i * column_stride] = from[i];
    });
  const float* result = orthogonalised(machine, work, shorter, std::max(op.m, op.n));
  float* direction = call.output(0, piece);
  matrix.each_run(call.context.tensor_rank, [&](const MatrixRun& run) {
    if (run.shard != own) return;
    const float* from = result + run.row * row_stride + run.column * column_stride;
    for (std::int64_t i = 0; i < run.count; ++i) direction[run.within + i] = from[i * column_stride];
  });
}

// Weight decay is separate from the update, as in AdamW.
void run_muon(Machine& machine, const Call& call) {
  const std::int64_t m = call.op.m, rest = call.op.k;
  const StepContext& context = call.context;
  const UpdateClock clock = clock_of(call, 3);
  if (clock.skips) return;
  const float* gradient = call.input(0, m);
  const float* direction = call.input(2, m);
  float* parameter = call.output(0, m);
  float* first = call.output(1, m);
  float* second = rest > 0 ? call.output(2, rest) : nullptr;
  AdamWFactors factors = adamw_factors(call, clock);
  const ElementRange all{0, m, false, 1};
  for (const ElementRange& range : ranges_of(call, all)) {
    const bool whole = range.orthogonal > 0;
    ENSURE(whole || range.end <= rest, "elements to {} of {} with a second moment", range.end, rest);
    const double decay =
        whole ? context.matrix_rate * context.matrix_decay : context.learning_rate * context.weight_decay;
    const float keep = range.decay ? static_cast<float>(1 - decay) : 1.0F;
    const auto rate = static_cast<float>(context.matrix_rate * range.orthogonal);
    factors.keep = keep;
    machine.pool.each(range.end - range.begin, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
      const std::int64_t at = range.begin + begin;
      if (!whole)
        return machine.kernels.adamw(gradient + at, parameter + at, first + at, second + at, end - begin, factors);
      for (std::int64_t i = at; i < range.begin + end; ++i) parameter[i] = parameter[i] * keep - rate * direction[i];
    });
  }
  write_copy(machine, call, parameter, 3);
}

}  // namespace orrery::exec
