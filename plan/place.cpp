// Offsets of every buffer. Buffers that outlive their block are laid out together as one slab per micro-batch in
// flight: a slab is taken when a micro-batch's first such buffer is born and given back when its last one dies.
#include "plan/place.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/ensure.h"

namespace orrery::plan {

namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// A buffer that lives within one block, from step `from` to step `to` inclusive.
struct Interval {
  int buffer = -1;
  int from = 0, to = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;
};

// Largest first, each at the lowest offset that no overlapping interval occupies (greedy by size; Pisarchyk & Lee
// 2020, "Efficient Memory Management for Deep Neural Net Inference"). Returns the extent.
std::int64_t pack(std::vector<Interval>& intervals) {
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  std::int64_t extent = 0;
  std::vector<const Interval*> placed;  // by offset
  for (std::size_t index : order) {
    Interval& interval = intervals[index];
    std::int64_t offset = 0;
    for (const Interval* other : placed) {
      if (other->to < interval.from || interval.to < other->from) continue;
      if (offset + interval.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    interval.offset = offset;
    extent = std::max(extent, offset + interval.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &interval,
                                   [](const Interval* a, const Interval* b) { return a->offset < b->offset; }),
                  &interval);
  }
  return extent;
}

// Bytes alive inside one block: the most at once, and what the block leaves to, or takes from, its micro-batch.
struct Profile {
  std::int64_t peak = 0;
  int peak_step = 0;
  std::int64_t change = 0;
};

class Placing {
 public:
  explicit Placing(const RankClass& rank_class) : class_(rank_class) {}

  Placement run() {
    persistent();
    slab();
    blocks();
    program();
    return std::move(result_);
  }

 private:
  const Buffer& buffer(int index) const { return class_.buffers[at(index)]; }
  std::int64_t bytes(int index) const { return aligned(buffer(index).bytes()); }
  bool crosses(int index) const { return buffer(index).per_micro_batch; }

  void persistent() {
    result_.persistent.assign(class_.buffers.size(), -1);
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      if (!class_.buffers[i].persistent) continue;
      result_.persistent[i] = persistent_;
      persistent_ += bytes(static_cast<int>(i));
    }
  }

  void slab() {
    in_slab_.assign(class_.buffers.size(), 0);
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      if (!class_.buffers[i].per_micro_batch) continue;
      in_slab_[i] = slab_;
      slab_ += bytes(static_cast<int>(i));
    }
  }

  void blocks() {
    in_block_.assign(class_.buffers.size(), 0);
    for (const Block& block : class_.blocks) {
      std::vector<Interval> intervals;
      std::map<int, std::size_t> open;
      Profile profile;
      std::int64_t live = 0;
      for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
        const Step& step = block.steps[at(s)];
        for (int index : step.births) {
          live += bytes(index);
          profile.change += crosses(index) ? bytes(index) : 0;
          if (crosses(index)) continue;
          open[index] = intervals.size();
          intervals.push_back({index, s, static_cast<int>(block.steps.size()), bytes(index), 0});
        }
        if (live > profile.peak) profile.peak = live, profile.peak_step = s;
        for (int index : step.deaths) {
          live -= bytes(index);
          profile.change -= crosses(index) ? bytes(index) : 0;
          if (!crosses(index)) intervals[open.at(index)].to = s;
        }
      }
      scratch_ = std::max(scratch_, pack(intervals));
      for (const Interval& interval : intervals) in_block_[at(interval.buffer)] = interval.offset;
      profiles_.push_back(profile);
    }
  }

  // Regions, from the start: persistent, scratch of the running block, slabs.
  void program() {
    std::map<int, int> slot_of;   // micro-batch -> slab
    std::map<int, int> alive_in;  // micro-batch -> buffers alive in its slab
    std::vector<int> free_slots;
    int slots = 0;
    std::int64_t crossing_live = 0;
    StepRef peak{-1, 0};
    std::int64_t crossing_at_peak = 0;
    for (int e = 0; e < static_cast<int>(class_.program.size()); ++e) {
      const Entry& entry = class_.program[at(e)];
      const Block& block = class_.blocks[at(entry.block)];
      const Profile& profile = profiles_[at(entry.block)];
      if (persistent_ + crossing_live + profile.peak > result_.peak_live_bytes || peak.entry < 0) {
        result_.peak_live_bytes = persistent_ + crossing_live + profile.peak;
        peak = {e, profile.peak_step};
        crossing_at_peak = crossing_live;
      }
      for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
        const Step& step = block.steps[at(s)];
        for (int index : step.births) {
          Placed placed{{e, s}, index, entry.micro_batch, persistent_ + in_block_[at(index)], bytes(index)};
          if (crosses(index)) {
            if (!slot_of.contains(entry.micro_batch)) {
              if (free_slots.empty()) free_slots.push_back(slots++);
              slot_of[entry.micro_batch] = free_slots.back();
              free_slots.pop_back();
            }
            ++alive_in[entry.micro_batch];
            placed.offset = persistent_ + scratch_ + slot_of[entry.micro_batch] * slab_ + in_slab_[at(index)];
          }
          result_.births.push_back(placed);
        }
        for (int index : step.deaths) {
          if (!crosses(index) || --alive_in[entry.micro_batch] > 0) continue;
          free_slots.push_back(slot_of.at(entry.micro_batch));
          slot_of.erase(entry.micro_batch);
          alive_in.erase(entry.micro_batch);
        }
      }
      crossing_live += profile.change;
    }
    result_.arena_bytes = persistent_ + scratch_ + slots * slab_;
    purposes(peak, crossing_at_peak);
  }

  // What is alive at the peak, by purpose. The other micro-batches in flight hold whole slabs.
  void purposes(StepRef peak, std::int64_t crossing) {
    result_.by_purpose.assign(static_cast<std::size_t>(Purpose::scalars) + 1, 0);
    const auto add = [&](int index, std::int64_t amount) {
      result_.by_purpose[static_cast<std::size_t>(buffer(index).purpose)] += amount;
    };
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      const int index = static_cast<int>(i);
      if (buffer(index).persistent) add(index, bytes(index));
      if (crosses(index) && slab_ > 0) add(index, bytes(index) * (crossing / slab_));
    }
    if (peak.entry < 0) return;
    const Block& block = class_.blocks[at(class_.program[at(peak.entry)].block)];
    for (int s = 0; s <= peak.step; ++s) {
      for (int index : block.steps[at(s)].births) add(index, bytes(index));
      if (s < peak.step)
        for (int index : block.steps[at(s)].deaths) add(index, -bytes(index));
    }
  }

  const RankClass& class_;
  Placement result_;
  std::int64_t persistent_ = 0, slab_ = 0, scratch_ = 0;
  std::vector<std::int64_t> in_slab_, in_block_;
  std::vector<Profile> profiles_;
};

}  // namespace

Placement place(const RankClass& rank_class) {
  return Placing(rank_class).run();
}

}  // namespace orrery::plan
