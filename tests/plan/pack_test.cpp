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

// One block sends a small buffer at its end, another takes a large one at its start, and two as large live in a third:
// right behind the large one the small one would leave them no place.
TEST(Pack, PartsWhatIsSentFromWhatComesWithoutLargeHoles) {
  constexpr std::int64_t kSmall = 256, kLarge = 100 * kSmall;
  const auto buffer = [](int from, int to, std::int64_t bytes) {
    ScratchBuffer one;
    one.from = from, one.to = to, one.bytes = bytes;
    return one;
  };
  ScratchBuffer sent = buffer(1, 2, kSmall), comes = buffer(0, 1, kLarge);
  sent.leaves = comes.arrives = true;
  std::vector<Block> blocks = {
      {buffer(0, 1, kSmall), sent}, {buffer(0, 2, kLarge), buffer(1, 3, kLarge), sent}, {comes}};
  EXPECT_EQ(pack_blocks(blocks), 2 * kLarge + kSmall);
  const auto apart = [](const ScratchBuffer& a, const ScratchBuffer& b) {
    return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
  };
  for (const std::size_t block : {0, 1}) EXPECT_TRUE(apart(blocks[block].back(), blocks[2].front()));
}

}  // namespace pack_test
}  // namespace orrery::plan
