// Packing of what lives within a block: what the order of the given intervals may change, and what it may not.
#include "plan/schedule/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace orrery::plan {
namespace pack_test {

using Block = std::vector<ScratchBuffer>;

Block random_block(std::mt19937& random, int buffers) {
  Block out;
  for (int i = 0; i < buffers; ++i) {
    ScratchBuffer one;
    one.buffer = BufferId(i);
    one.from = static_cast<int>(random() % 20);
    one.to = one.from + static_cast<int>(random() % 8);
    one.bytes = 256 * (1 + static_cast<std::int64_t>(random() % 50));
    out.push_back(one);
  }
  return out;
}

std::int64_t packed(Block block) {
  std::vector<Block> blocks = {std::move(block)};
  return pack_blocks(blocks);
}

TEST(Pack, PutsNothingOnWhatLivesAtTheSameTime) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Block> blocks = {random_block(random, 40)};
    const std::int64_t bytes = pack_blocks(blocks);
    const Block& block = blocks.front();
    EXPECT_GE(bytes, most_alive(block));
    for (const ScratchBuffer& a : block)
      for (const ScratchBuffer& b : block) {
        const bool meet = a.buffer != b.buffer && a.from <= b.to && b.from <= a.to;
        EXPECT_FALSE(meet && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes);
      }
  }
}

TEST(Pack, GivesTheSameSizeWhateverTheOrderWithinAStep) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 50; ++trial) {
    Block block = random_block(random, 40);
    const std::int64_t bytes = packed(block);
    for (int again = 0; again < 5; ++again) {
      std::shuffle(block.begin(), block.end(), random);
      EXPECT_EQ(packed(block), bytes);
    }
  }
}

}  // namespace pack_test
}  // namespace orrery::plan
