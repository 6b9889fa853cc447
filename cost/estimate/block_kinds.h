#pragma once
/// Groups blocks that cost the same: blocks with a window or with full attention, which differ in time but not in
/// memory, and blocks with experts or with one MLP.
#include <cstdint>
#include <vector>

#include "models/model.h"

namespace orrery::cost {

struct BlockKind {
  std::int64_t index = 0, count = 0;  ///< index of one of them, and their number
};

/// Whether blocks are of several kinds.
[[nodiscard]] inline bool has_kinds(const models::Model& model) {
  const bool mixed = model.experts.any() && (model.experts.first_dense > 0 || model.experts.period > 1);
  return mixed || (model.window > 0 && model.window_period > 0);
}
/// Whether `count` blocks from `first` on are of the same kinds, in order, as those from `other` on.
[[nodiscard]] inline bool same_kinds(const models::Model& model, std::int64_t first, std::int64_t other,
                                     std::int64_t count) {
  if (!has_kinds(model)) return true;
  for (std::int64_t i = 0; i < count; ++i)
    if (model.experts.in_layer(first + i) != model.experts.in_layer(other + i) ||
        model.windowed(first + i) != model.windowed(other + i))
      return false;
  return true;
}

/// The kinds among the blocks [first, first + count).
[[nodiscard]] inline std::vector<BlockKind> block_kinds(const models::Model& model, std::int64_t first,
                                                        std::int64_t count) {
  if (count == 0) return {};
  if (!has_kinds(model)) return {{first, count}};
  BlockKind kinds[4];
  for (std::int64_t i = first; i < first + count; ++i) {
    BlockKind& kind = kinds[(model.experts.in_layer(i) ? 2 : 0) + (model.windowed(i) ? 0 : 1)];
    kind = {i, kind.count + 1};
  }
  std::vector<BlockKind> out;
  for (const BlockKind& kind : kinds)
    if (kind.count > 0) out.push_back(kind);
  return out;
}

}  // namespace orrery::cost
