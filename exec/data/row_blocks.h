#pragma once
/// Sums of a bag's rows that do not depend on how many ranks share the rows: those of each quarter of the table are
/// summed by themselves, and the quarters' sums are added as a binary tree. Each of 2 or 4 ranks that divide the rows
/// has a subtree, and the rest of the tree is where their sums arrive, or the ranks' reduce-scatter. So a bag's lookups
/// are in the order of their quarters from the moment they are read. A bag in any other order has the same sum, but for
/// rounding.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/recommender.h"

namespace orrery::exec {

/// Quarters: enough for 4 ranks, as of samples (exec/cpu/sample_blocks.h).
inline constexpr std::int64_t kBlocksOfRows = 4;

/// The first row of a block; of block kBlocksOfRows the number of rows. Ranks divide rows likewise (plan::TableShard).
[[nodiscard]] inline std::int64_t first_of_block(std::int64_t rows, std::int64_t block) {
  return rows * block / kBlocksOfRows;
}

/// Puts a bag's lookups, each of `words` int32 that begin with its row, in the order of their blocks; within a block
/// they stay in theirs. Row -1 stands behind the last lookup of a shorter bag.
inline void order_by_blocks(std::span<std::int32_t> bag, std::size_t words, std::int64_t rows) {
  thread_local std::vector<std::int32_t> given;
  given.assign(bag.begin(), bag.end());
  auto to = bag.begin();
  for (std::int64_t block = 0; block <= kBlocksOfRows; ++block)
    for (std::size_t i = 0; i < given.size(); i += words) {
      const std::int64_t row = given[i];
      const bool last = block == kBlocksOfRows;
      const bool here = row >= first_of_block(rows, block) && row < first_of_block(rows, block + 1);
      if (!(last ? row < 0 || row >= rows : here)) continue;
      to = std::copy_n(given.begin() + static_cast<std::ptrdiff_t>(i), words, to);
    }
}

/// The same for every bag of samples (exec::ClickBatch::indices).
inline void order_by_blocks(const models::Recommender& model, std::span<std::int32_t> indices) {
  const auto words = static_cast<std::size_t>(model.lookup_words());
  if (std::ranges::all_of(model.tables, [](const models::Table& table) { return table.multi_hot == 1; })) return;
  for (std::size_t at = 0; at < indices.size();)
    for (const models::Table& table : model.tables) {
      const auto size = static_cast<std::size_t>(table.multi_hot) * words;
      if (table.multi_hot > 1) order_by_blocks(indices.subspan(at, size), words, table.rows);
      at += size;
    }
}

}  // namespace orrery::exec
