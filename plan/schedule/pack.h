#pragma once
/// Places for what lives within a block, by intervals of its steps: the scratch region of an arena
/// (plan/schedule/place.h).
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A buffer that lives within one block, from step `from` to step `to` inclusive.
struct ScratchBuffer {
  BufferId buffer;
  int from = 0, to = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;
  bool arrives = false;  ///< born by a message that comes before all computation of the block
  bool leaves = false;   ///< dies at a send after all computation of the block, while other blocks have begun
  bool fixed = false;    ///< already has its offset
};

/// What lives within one block of a class alone, in one memory; not packed yet.
[[nodiscard]] std::vector<ScratchBuffer> scratch_of(const RankClass& rank_class, const Block& block, Space space);

/// Bytes alive at the fullest step: the least that a block needs.
[[nodiscard]] std::int64_t most_alive(const std::vector<ScratchBuffer>& block);
/// Gives every buffer in a class's blocks its offset; only one block runs at a time. Returns the bytes that they need.
std::int64_t pack_blocks(std::vector<std::vector<ScratchBuffer>>& blocks);

}  // namespace orrery::plan
