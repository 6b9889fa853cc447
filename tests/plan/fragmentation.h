#pragma once
/// One rank's births and deaths over some training steps, through the placement made ahead and through a caching
/// allocator.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/schedule/place.h"
#include "plan/schedule/schedule.h"
#include "tests/plan/caching_allocator.h"

namespace orrery::testing {

struct Fragmentation {
  std::int64_t live = 0;      ///< most bytes alive at once, unrounded
  std::int64_t arena = 0;     ///< what the placement takes
  std::int64_t reserved = 0;  ///< what the caching allocator has asked its device for
};

inline Fragmentation fragmentation_of(const plan::RankClass& c, int steps = 3) {
  Fragmentation out;
  out.arena = plan::place(c).arena_bytes;
  CachingAllocator allocator;
  std::map<std::pair<plan::BufferId, int>, std::int64_t> handles;
  std::int64_t alive = 0;
  const auto bytes = [&](plan::BufferId buffer) { return c.buffers[buffer].bytes(); };
  const auto birth = [&](plan::BufferId buffer, int micro_batch) {
    if (c.buffers[buffer].space != plan::Space::device) return;
    handles[{buffer, micro_batch}] = allocator.allocate(bytes(buffer));
    out.live = std::max(out.live, alive += bytes(buffer));
  };
  for (const plan::BufferId b : c.buffers.keys())
    if (c.buffers[b].persistent) birth(b, -1);
  for (int step = 0; step < steps; ++step)
    for (const plan::Entry& entry : c.program)
      for (const plan::Step& s : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
        for (const plan::BufferId b : s.births) birth(b, entry.micro_batch);
        for (const plan::BufferId b : s.deaths) {
          const auto found = handles.find({b, entry.micro_batch});
          if (found == handles.end()) continue;
          allocator.release(found->second);
          alive -= bytes(b);
          handles.erase(found);
        }
      }
  out.reserved = allocator.reserved();
  return out;
}

}  // namespace orrery::testing
