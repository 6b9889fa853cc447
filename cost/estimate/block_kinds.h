#pragma once
/// Groups blocks that cost the same (models::BlockVariant). Blocks with and without an attention window differ in time;
/// in memory only if they have other heads.
#include <cstdint>
#include <map>
#include <vector>

#include "models/model.h"

namespace orrery::cost {

struct BlockKind {
  std::int64_t index = 0, count = 0;  ///< index of one of these blocks, and their number
};

/// Whether `count` blocks from `first` on are of the same kinds, in the same order, as those from `other` on.
[[nodiscard]] inline bool same_kinds(const models::Model& model, std::int64_t first, std::int64_t other,
                                     std::int64_t count) {
  if (!model.has_variants()) return true;
  for (std::int64_t i = 0; i < count; ++i)
    if (model.variant(first + i) != model.variant(other + i)) return false;
  return true;
}

/// The blocks [first, first + count) as runs of equal ones, in their order.
[[nodiscard]] inline std::vector<BlockKind> block_runs(const models::Model& model, std::int64_t first,
                                                       std::int64_t count) {
  std::vector<BlockKind> out;
  if (count == 0) return out;
  if (!model.has_variants()) return {{first, count}};
  for (std::int64_t i = first; i < first + count; ++i)
    if (!out.empty() && model.variant(i) == model.variant(out.back().index))
      ++out.back().count;
    else
      out.push_back({i, 1});
  return out;
}

/// The same as runs of blocks that hold the same, whatever they see: that is all that memory asks for.
[[nodiscard]] inline std::vector<BlockKind> block_parts(const models::Model& model, std::int64_t first,
                                                        std::int64_t count) {
  const auto hold_alike = [&](std::int64_t a, std::int64_t b) {
    return model.parts(a) == model.parts(b) && model.variant(a).chooses == model.variant(b).chooses &&
           model.variant(a).borrows == model.variant(b).borrows && model.kv_heads_of(a) == model.kv_heads_of(b) &&
           model.heads_of(a) == model.heads_of(b) && model.head_dim_of(a) == model.head_dim_of(b) &&
           model.makes_values(a) == model.makes_values(b);
  };
  std::vector<BlockKind> out;
  for (const BlockKind& run : block_runs(model, first, count))
    if (!out.empty() && hold_alike(run.index, out.back().index))
      out.back().count += run.count;
    else
      out.push_back(run);
  return out;
}

/// The kinds among them.
[[nodiscard]] inline std::vector<BlockKind> block_kinds(const models::Model& model, std::int64_t first,
                                                        std::int64_t count) {
  if (count == 0) return {};
  if (!model.has_variants()) return {{first, count}};
  std::map<models::BlockVariant, BlockKind> kinds;
  for (std::int64_t i = first; i < first + count; ++i) {
    BlockKind& kind = kinds[model.variant(i)];
    kind = {i, kind.count + 1};
  }
  std::vector<BlockKind> out;
  for (const auto& [variant, kind] : kinds) out.push_back(kind);
  return out;
}

}  // namespace orrery::cost
