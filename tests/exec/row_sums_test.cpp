// Sums of a bag's rows: in what order, and that a part of a row's columns has the bits of the whole.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "exec/cpu/dispatch.h"
#include "exec/data/row_blocks.h"

namespace orrery::exec::row_sums_test {

TEST(RowBlocks, LookupsAreOrderedByQuartersOfTheTableAndKeepTheirOrderWithin) {
  std::vector<std::int32_t> bag = {9, 90, -1, 0, 4, 40, 8, 80, 0, 10, 3, 30, 5, 50};  // rows and weights
  order_by_blocks(bag, 2, 10);                                                        // quarters from 0, 2, 5 and 7
  EXPECT_EQ(bag, (std::vector<std::int32_t>{0, 10, 4, 40, 3, 30, 5, 50, 9, 90, 8, 80, -1, 0}));
}

TEST(RowBlocks, ATableOfFewerRowsThanQuartersHasEmptyOnes) {
  std::vector<std::int32_t> bag = {2, 0, -1, 1, 0};
  order_by_blocks(bag, 1, 3);
  EXPECT_EQ(bag, (std::vector<std::int32_t>{0, 0, 1, 2, -1}));
}

// Ranks that divide a table's columns have narrower rows, for which compilers choose other instructions.
TEST(RowSums, OfHalfTheColumnsHaveTheBitsOfTheWholeRowsWeightedToo) {
  constexpr std::int64_t kRows = 64, kWidth = 16, kHalf = kWidth / 2;
  const Kernels& kernels = best_kernels();
  std::vector<float> rows(kRows * kWidth), left(kRows * kHalf), right(kRows * kHalf);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(base::uniform(1, 0, i)) - 0.5F;
    auto& half = i % kWidth < kHalf ? left : right;
    half[i / kWidth * kHalf + i % kHalf] = rows[i];
  }
  for (std::int64_t count = 1; count <= 40; ++count) {
    std::vector<std::int64_t> whole, part;
    std::vector<float> weights;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i * 37 % kRows;
      whole.push_back(row * kWidth), part.push_back(row * kHalf);
      weights.push_back(static_cast<float>(base::uniform(2, 0, static_cast<std::uint64_t>(i))));
    }
    std::vector<float> all(kWidth), of_left(kHalf), of_right(kHalf);
    kernels.sum_weighted_parts(rows.data(), whole.data(), weights.data(), count, count, kWidth, all.data());
    kernels.sum_weighted_parts(left.data(), part.data(), weights.data(), count, count, kHalf, of_left.data());
    kernels.sum_weighted_parts(right.data(), part.data(), weights.data(), count, count, kHalf, of_right.data());
    of_left.insert(of_left.end(), of_right.begin(), of_right.end());
    EXPECT_EQ(of_left, all) << count << " rows";
  }
}

}  // namespace orrery::exec::row_sums_test
