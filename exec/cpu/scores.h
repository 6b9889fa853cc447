#pragma once
/// How attention changes the products of queries and keys before the softmax: a scale, a cap (Gemma 2), a slope on
/// distances (ALiBi). models/operators/op.h has the formula.
#include <cmath>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "models/alibi.h"

namespace orrery::exec {

class Scores {
 public:
  explicit Scores(const Call& call)
      : scale_(static_cast<float>(call.op.score_scale > 0 ? call.op.score_scale
                                                          : 1.0 / std::sqrt(static_cast<double>(call.op.head_dim)))),
        cap_(static_cast<float>(call.op.cap)),
        heads_(call.op.alibi_heads),
        first_head_(call.context.tensor_rank * call.op.heads) {}
  /// The derivative of a score with respect to its product, without the cap's factor.
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] bool capped() const { return cap_ > 0; }
  /// The scale that the softmax must still apply: none for scores that `bend` has processed.
  [[nodiscard]] float left() const { return bends() ? 1.0F : scale_; }

  /// Applies all of this in place to one query's products with `count` keys. `distance`: from the first key to the
  /// query, negative if the key is later. `slopes` (null: none) receives the cap's factors for the gradients.
  void bend(const Kernels& kernels, float* row, std::int64_t count, std::int64_t head, std::int64_t distance,
            float* slopes = nullptr) const {
    if (!bends()) return;
    if (capped())
      kernels.cap(row, row, slopes, count, scale_, cap_);
    else
      for (std::int64_t i = 0; i < count; ++i) row[i] *= scale_;
    if (heads_ == 0) return;
    const auto slope = static_cast<float>(models::alibi_slope(first_head_ + head, heads_));
    for (std::int64_t i = 0; i < count; ++i) row[i] += slope * static_cast<float>(i - distance);
  }
  /// Only a cap's slopes. `row` holds the products, and may be `slopes`.
  void cap_slopes(const Kernels& kernels, const float* row, std::int64_t count, float* slopes) const {
    kernels.cap(row, nullptr, slopes, count, scale_, cap_);
  }

 private:
  [[nodiscard]] bool bends() const { return capped() || heads_ > 0; }
  float scale_, cap_;
  std::int64_t heads_, first_head_;
};

}  // namespace orrery::exec
