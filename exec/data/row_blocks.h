#pragma once
/// Sums of a bag's rows that do not depend on how many ranks share the rows: those of each quarter of the table are
/// summed by themselves, and the quarters' sums are added as a binary tree. Each of 2 or 4 ranks that divide the rows
/// has a subtree, and the rest of the tree is where their sums arrive, or the ranks' reduce-scatter. So a bag's lookups
/// are in the order of their quarters from the moment they are read. A bag in any other order has the same sum, but for
/// rounding.
#include <algorithm>
#include <array>
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
  constexpr auto kBehind = static_cast<std::size_t>(kBlocksOfRows);  // as a block of its own: what has no row
  std::array<std::int64_t, kBehind> first = {};
  for (std::size_t b = 0; b < kBehind; ++b) first[b] = first_of_block(rows, static_cast<std::int64_t>(b));
  const auto block_of = [&](std::int64_t row) {
    if (row < 0 || row >= rows) return kBehind;
    std::size_t block = 0;
    for (std::size_t b = 1; b < kBehind; ++b) block += row >= first[b] ? 1 : 0;
    return block;
  };
  std::array<std::size_t, kBehind + 2> begin = {};
  for (std::size_t i = 0; i < bag.size(); i += words) begin[block_of(bag[i]) + 1] += words;
  if (begin[1] == bag.size()) return;
  for (std::size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
  thread_local std::vector<std::int32_t> given;
  given.assign(bag.begin(), bag.end());
  for (std::size_t i = 0; i < given.size(); i += words) {
    std::size_t& to = begin[block_of(given[i])];
    for (std::size_t w = 0; w < words; ++w) bag[to + w] = given[i + w];
    to += words;
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
