#pragma once
/// Dropout masks as one rank's operator draws them: maps its own rows and heads to places in the whole model.
#include "exec/cpu/machine.h"
#include "models/operators/dropout.h"

namespace orrery::exec {

class Masks {
 public:
  explicit Masks(const Call& call)
      : op_(call.op), context_(call.context), key_(models::dropout_key(context_.seed, context_.sample_step)) {
    if (!any()) return;
    draw_.key = key_;
    draw_.site = static_cast<std::uint32_t>(op_.site);
    draw_.threshold = models::dropout_threshold(op_.dropout);
    draw_.scale = static_cast<float>(models::dropout_scale(op_.dropout));
  }
  [[nodiscard]] bool any() const { return op_.dropout > 0; }

  /// Factors of row `row` of the operator's n rows of m columns.
  void of_row(const Kernels& kernels, std::int64_t row, float* factors) const {
    const std::int64_t of_micro_batch = row + (op_.row_shard ? context_.tensor_rank * op_.n : 0);
    const std::int64_t position = position_of(op_, context_.part, of_micro_batch);
    kernels.dropout_factors(of_sequence(of_micro_batch / op_.sequence), static_cast<std::uint64_t>(position * op_.m),
                            op_.m, factors);
  }

  /// Factors for the probabilities of query `row` and keys [0, keys), in this rank's head `head` and the micro-batch's
  /// sequence `sequence`. The keys belong to rank `owner` of the ring.
  void of_scores(const Kernels& kernels, std::int64_t sequence, std::int64_t head, std::int64_t row, int owner,
                 std::int64_t keys, float* factors) const {
    const std::int64_t all = op_.sequence * op_.context, global_head = context_.tensor_rank * op_.heads + head;
    const std::int64_t query = position_of(op_, context_.part, row);
    const auto first = static_cast<std::uint64_t>((global_head * all + query) * all);
    // A block of the ring has two runs of keys.
    const std::int64_t run = op_.context > 1 ? op_.sequence / 2 : op_.sequence;
    for (std::int64_t at = 0; at < keys; at += run)
      kernels.dropout_factors(of_sequence(sequence), first + static_cast<std::uint64_t>(position_of(op_, owner, at)),
                              std::min(run, keys - at), factors + at);
  }
  /// The same for this rank's own keys.
  void of_scores(const Kernels& kernels, std::int64_t sequence, std::int64_t head, std::int64_t row, std::int64_t keys,
                 float* factors) const {
    of_scores(kernels, sequence, head, row, context_.part, keys, factors);
  }

 private:
  [[nodiscard]] DropoutDraw of_sequence(std::int64_t sequence) const {
    DropoutDraw draw = draw_;
    draw.sequence = static_cast<std::uint32_t>(context_.first_sequence + sequence);
    return draw;
  }
  const models::Op& op_;
  const StepContext& context_;
  std::uint64_t key_;
  DropoutDraw draw_;
};

/// x *= factors
inline void apply(const float* factors, float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factors[i];
}

}  // namespace orrery::exec
