// Greedy packing of intervals.
#include "plan/schedule/pack.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/index.h"

namespace orrery::plan {

namespace {

using base::at;

// Puts each interval, in the given order, at the lowest offset free of intervals it meets. Returns the extent.
template <typename Meets>
std::int64_t pack_in_order(std::vector<ScratchBuffer>& intervals, const std::vector<std::size_t>& order, Meets meets) {
  std::int64_t extent = 0;
  std::vector<const ScratchBuffer*> placed;  // by offset
  placed.reserve(intervals.size());
  const auto insert = [&](const ScratchBuffer& interval) {
    extent = std::max(extent, interval.offset + interval.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &interval,
                         [](const ScratchBuffer* a, const ScratchBuffer* b) { return a->offset < b->offset; }),
        &interval);
  };
  for (const ScratchBuffer& interval : intervals)
    if (interval.fixed) insert(interval);
  for (std::size_t index : order) {
    ScratchBuffer& interval = intervals[index];
    if (interval.fixed) continue;
    std::int64_t offset = 0;
    for (const ScratchBuffer* other : placed) {
      if (!meets(interval, *other)) continue;
      if (offset + interval.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    interval.offset = offset;
    insert(interval);
  }
  return extent;
}

bool meet(const ScratchBuffer& a, const ScratchBuffer& b) {
  return a.from <= b.to && b.from <= a.to;
}

// Most bytes alive at once, and the first step at which they are.
struct Fullest {
  std::int64_t bytes = 0;
  int step = 0;
};
Fullest fullest_of(const std::vector<ScratchBuffer>& intervals) {
  int steps = 0;
  for (const ScratchBuffer& interval : intervals) steps = std::max(steps, interval.to + 1);
  std::vector<std::int64_t> change(at(steps) + 1, 0);
  for (const ScratchBuffer& interval : intervals) {
    change[at(interval.from)] += interval.bytes;
    change[at(interval.to) + 1] -= interval.bytes;
  }
  Fullest out;
  std::int64_t alive = 0;
  for (int s = 0; s < steps; ++s)
    if ((alive += change[at(s)]) > out.bytes) out = {alive, s};
  return out;
}

// Greedy by size (Pisarchyk & Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"); where that leaves
// holes, also with what lives at the fullest step first, by birth, and by bytes x steps: the best of the four. The
// bytes alive at the fullest step are a lower bound.
void pack(std::vector<ScratchBuffer>& intervals) {
  const Fullest fullest = fullest_of(intervals);
  const auto space = [&](std::size_t i) {
    return static_cast<double>(intervals[i].bytes) * (intervals[i].to - intervals[i].from + 1);
  };
  // By birth, longest first: so the order within a step, which means nothing, changes nothing.
  std::vector<std::size_t> births(intervals.size());
  std::iota(births.begin(), births.end(), std::size_t{0});
  const auto birth = [&](std::size_t i) {
    const ScratchBuffer& one = intervals[i];
    return std::tuple(one.from, -one.to, -one.bytes, one.arrives, one.leaves);
  };
  std::stable_sort(births.begin(), births.end(), [&](std::size_t a, std::size_t b) { return birth(a) < birth(b); });
  std::int64_t best = -1;
  std::vector<ScratchBuffer> best_intervals;
  const auto there = [&](std::size_t i) {
    return intervals[i].from <= fullest.step && fullest.step <= intervals[i].to;
  };
  for (const int by : {0, 1, 2, 3}) {
    std::vector<std::size_t> order = births;
    if (by != 2)
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (by == 1 && there(a) != there(b)) return there(a);
        return by == 3 ? space(a) > space(b) : intervals[a].bytes > intervals[b].bytes;
      });
    const std::int64_t extent = pack_in_order(intervals, order, meet);
    if (best < 0 || extent < best) {
      best = extent;
      best_intervals = intervals;
    }
    if (best <= fullest.bytes) break;
  }
  intervals = std::move(best_intervals);
}

using Blocks = std::vector<std::vector<ScratchBuffer>>;

std::int64_t extent_of(const Blocks& blocks) {
  std::int64_t extent = 0;
  for (const std::vector<ScratchBuffer>& block : blocks)
    for (const ScratchBuffer& one : block) extent = std::max(extent, one.offset + one.bytes);
  return extent;
}

bool apart(const ScratchBuffer& a, const ScratchBuffer& b) {
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

// Whether what one block sends at its end has a place that something takes which comes at the start of another.
bool ends_meet(const Blocks& blocks) {
  std::vector<const ScratchBuffer*> leaving, arriving;
  for (const std::vector<ScratchBuffer>& block : blocks)
    for (const ScratchBuffer& one : block) {
      if (one.leaves) leaving.push_back(&one);
      if (one.arrives) arriving.push_back(&one);
    }
  return std::any_of(leaving.begin(), leaving.end(), [&](const ScratchBuffer* a) {
    return std::any_of(arriving.begin(), arriving.end(), [&](const ScratchBuffer* b) { return !apart(*a, *b); });
  });
}

// Gives what arrives or leaves places of its own, and packs all else around them. `below`: what leaves comes first, at
// the bottom; otherwise the largest.
void pack_around_ends(Blocks& blocks, bool below) {
  struct Mine {
    std::size_t block, index;
  };
  std::vector<Mine> which;
  std::vector<ScratchBuffer> ends;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    for (std::size_t i = 0; i < blocks[b].size(); ++i)
      if (blocks[b][i].arrives || blocks[b][i].leaves) which.push_back({b, i}), ends.push_back(blocks[b][i]);
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (below && ends[a].leaves != ends[b].leaves) return ends[a].leaves;
    return ends[a].bytes > ends[b].bytes;
  });
  const auto one_of = [&](const ScratchBuffer& interval) {
    return which[at(static_cast<int>(&interval - ends.data()))];
  };
  pack_in_order(ends, order, [&](const ScratchBuffer& a, const ScratchBuffer& b) {
    return (a.leaves && b.arrives) || (a.arrives && b.leaves) || (one_of(a).block == one_of(b).block && meet(a, b));
  });
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ScratchBuffer& interval = blocks[which[i].block][which[i].index];
    interval.offset = ends[i].offset;
    interval.fixed = true;
  }
  for (std::vector<ScratchBuffer>& block : blocks) pack(block);
}

// A buffer that a block frees by sending is still read when the next block begins, possibly with a receive. Were both
// in one place, a ring of stages that send and receive at the same time would wait for itself; elsewhere the receive
// would start late. `blocks` are packed independently. Where a sender's and a receiver's buffer have come to overlap,
// they are parted in two ways, of which the better one stays: a small message between large buffers leaves a hole
// that the large ones of another block do not fit into, but at the bottom it does not.
void part_messages(Blocks& blocks) {
  if (!ends_meet(blocks)) return;
  std::int64_t least = 0;
  for (const std::vector<ScratchBuffer>& block : blocks) least = std::max(least, most_alive(block));
  Blocks below = blocks;
  pack_around_ends(blocks, false);
  const std::int64_t extent = extent_of(blocks);
  if (extent <= least) return;
  pack_around_ends(below, true);
  if (extent_of(below) < extent) blocks = std::move(below);
}

}  // namespace

std::int64_t most_alive(const std::vector<ScratchBuffer>& block) {
  return fullest_of(block).bytes;
}

std::int64_t pack_blocks(std::vector<std::vector<ScratchBuffer>>& blocks) {
  for (std::vector<ScratchBuffer>& block : blocks) pack(block);
  part_messages(blocks);
  return extent_of(blocks);
}

}  // namespace orrery::plan
