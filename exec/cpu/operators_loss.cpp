// The loss over vocabulary shards: a rank has columns [rank*m, rank*m + m) of the logits. Columns at or beyond the
// vocabulary's size are padding and count as -infinity. Allocates nothing of the logits' size.
//
// A row whose target is -1 predicts nothing: its sum is infinite, so that all its gradients are 0 on every rank, and
// the loss leaves it out. No other sum is: its terms are at most 1.
#include <cmath>
#include <limits>

#include "exec/cpu/machine.h"

namespace orrery::exec {
namespace {

struct Shard {
  std::int64_t rows, columns, first, real;  ///< `real`: columns that are not padding
  explicit Shard(const Call& call)
      : rows(call.op.n),
        columns(call.op.m),
        first(call.context.tensor_rank * call.op.m),
        real(std::clamp<std::int64_t>(call.op.vocab - first, 0, call.op.m)) {}
  /// The column of this shard that holds `id`, or -1.
  [[nodiscard]] std::int64_t column_of(std::int32_t id) const {
    return id >= first && id < first + real ? id - first : -1;
  }
};

}  // namespace

void run_softmax_max(Machine& machine, const Call& call) {
  const Shard s(call);
  const float* logits = call.input(0, s.rows * s.columns);
  float* max = call.output(0, s.rows);
  machine.pool.each(s.rows, rows_per_chunk(s.columns), [&](std::int64_t begin, std::int64_t end, int) {
    machine.kernels.row_max(logits + begin * s.columns, max + begin, end - begin, s.columns, s.real);
  });
}

void run_softmax_sum(Machine& machine, const Call& call) {
  const Shard s(call);
  const float* logits = call.input(0, s.rows * s.columns);
  const float* max = call.input(1, s.rows);
  const std::int32_t* targets = call.ids(2, s.rows);
  float* sums = call.output(0, 2 * s.rows);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int64_t column = s.column_of(targets[row]);
    sums[s.rows + row] = column < 0 ? 0.0F : logits[row * s.columns + column];
  }
  machine.pool.each(s.rows, rows_per_chunk(s.columns), [&](std::int64_t begin, std::int64_t end, int) {
    machine.kernels.row_exp_sum(logits + begin * s.columns, max + begin, sums + begin, end - begin, s.columns, s.real);
  });
  for (std::int64_t row = 0; row < s.rows; ++row)
    if (targets[row] < 0) sums[row] = std::numeric_limits<float>::infinity();
}

void run_cross_entropy(Machine&, const Call& call) {
  const std::int64_t rows = call.op.n;
  const float* max = call.input(0, rows);
  const float* sums = call.input(1, 2 * rows);
  float* loss = call.output(0, 1);
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    if (!std::isinf(sums[row]))
      total += std::log(static_cast<double>(sums[row])) + static_cast<double>(max[row]) -
               static_cast<double>(sums[rows + row]);
  loss[0] = static_cast<float>(static_cast<double>(loss[0]) + call.op.scale * total);
}

void run_cross_entropy_grad(Machine& machine, const Call& call) {
  const Shard s(call);
  const float* logits = call.input(0, s.rows * s.columns);
  const float* max = call.input(1, s.rows);
  const float* sums = call.input(2, s.rows);
  const std::int32_t* targets = call.ids(3, s.rows);
  float* dlogits = call.output(0, s.rows * s.columns);
  const float* scaling = call.optional_input(4, 1);
  const float scale = static_cast<float>(call.op.scale) * (scaling == nullptr ? 1.0F : scaling[0]);
  const auto inward = static_cast<float>(call.op.cap > 0 ? 1 / call.op.cap : 0);
  machine.pool.each(s.rows, rows_per_chunk(s.columns), [&](std::int64_t begin, std::int64_t end, int thread) {
    // If logits are capped, saves the slopes before the gradient may replace the logits.
    float* slopes = call.op.cap > 0 ? machine.scratch.get(thread, s.real) : nullptr;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * s.columns;
      for (std::int64_t i = 0; slopes != nullptr && i < s.real; ++i)
        slopes[i] = 1.0F - (logits[at + i] * inward) * (logits[at + i] * inward);
      machine.kernels.row_softmax(logits + at, max + row, sums + row, dlogits + at, 1, s.columns, s.real, scale);
      const std::int64_t column = s.column_of(targets[row]);
      if (column >= 0) dlogits[at + column] -= scale;
      for (std::int64_t i = 0; slopes != nullptr && i < s.real; ++i) dlogits[at + i] *= slopes[i];
    }
  });
}

}  // namespace orrery::exec
