#pragma once
/// What attention makes of the products of queries and keys ahead of the softmax: a scale, a cap (Gemma 2), a slope on
/// distances (ALiBi). models/op.h has the formula.
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
  /// Of a score's slope by its product, without the cap's.
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] bool capped() const { return cap_ > 0; }
  /// What the softmax has yet to multiply by: of scores that `bend` has seen nothing.
  [[nodiscard]] float left() const { return bends() ? 1.0F : scale_; }

  /// Products of one query with `count` keys in place, the first of which is `distance` behind it (ahead: below 0).
  /// `slopes` (null: none) gets what a cap multiplies their gradients by.
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
  /// A cap's slopes alone; `row` holds the products and may be `slopes`.
  void cap_slopes(const Kernels& kernels, const float* row, std::int64_t count, float* slopes) const {
    kernels.cap(row, nullptr, slopes, count, scale_, cap_);
  }

 private:
  [[nodiscard]] bool bends() const { return capped() || heads_ > 0; }
  float scale_, cap_;
  std::int64_t heads_, first_head_;
};

}  // namespace orrery::exec
