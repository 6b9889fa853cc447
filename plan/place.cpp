// Offsets of every buffer. Buffers that outlive their block are laid out in slabs: those that are born in one block and
// die in another are one slab per micro-batch in flight, taken when the first is born, given back when the last dies.
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

// Each in that order at the lowest offset that no overlapping interval occupies. Returns the extent.
std::int64_t pack_in_order(std::vector<Interval>& intervals, const std::vector<std::size_t>& order) {
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

// Greedy by size (Pisarchyk & Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"), and where that
// leaves holes, what lives at the fullest step first, by birth, or by bytes x steps: the best of the four. `least`:
// bytes alive at that step, which nothing beats.
std::int64_t pack(std::vector<Interval>& intervals, std::int64_t least, int fullest) {
  const auto space = [&](std::size_t i) {
    return static_cast<double>(intervals[i].bytes) * (intervals[i].to - intervals[i].from + 1);
  };
  std::int64_t best = -1;
  std::vector<Interval> best_intervals;
  const auto there = [&](std::size_t i) { return intervals[i].from <= fullest && fullest <= intervals[i].to; };
  for (const int by : {0, 1, 2, 3}) {
    std::vector<std::size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (by != 2)
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (by == 1 && there(a) != there(b)) return there(a);
        return by == 3 ? space(a) > space(b) : intervals[a].bytes > intervals[b].bytes;
      });
    const std::int64_t extent = pack_in_order(intervals, order);
    if (best < 0 || extent < best) {
      best = extent;
      best_intervals = intervals;
    }
    if (best <= least) break;
  }
  intervals = std::move(best_intervals);
  return std::max<std::int64_t>(best, 0);
}

// Bytes alive inside one block: the most at once, and what the block leaves to, or takes from, its micro-batch.
struct Profile {
  std::int64_t peak = 0;
  int peak_step = 0;
  std::int64_t change = 0;
};

class Placing {
 public:
  Placing(const RankClass& rank_class, Space space) : class_(rank_class), space_(space) {}

  Placement run() {
    persistent();
    slabs();
    blocks();
    program();
    return std::move(result_);
  }

 private:
  const Buffer& buffer(int index) const { return class_.buffers[at(index)]; }
  std::int64_t bytes(int index) const { return aligned(buffer(index).bytes()); }
  bool crosses(int index) const { return buffer(index).per_micro_batch; }
  bool here(int index) const { return buffer(index).space == space_; }

  void persistent() {
    result_.persistent.assign(class_.buffers.size(), -1);
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      if (!class_.buffers[i].persistent || !here(static_cast<int>(i))) continue;
      result_.persistent[i] = persistent_;
      persistent_ += bytes(static_cast<int>(i));
    }
  }

  // One kind of slab for each pair of the block that gives birth to its buffers and the block that ends them.
  void slabs() {
    in_slab_.assign(class_.buffers.size(), 0);
    slab_of_.assign(class_.buffers.size(), -1);
    std::vector<int> born(class_.buffers.size(), -1), dead(class_.buffers.size(), -1);
    for (int b = 0; b < static_cast<int>(class_.blocks.size()); ++b)
      for (const Step& step : class_.blocks[at(b)].steps) {
        for (int index : step.births) born[at(index)] = b;
        for (int index : step.deaths) dead[at(index)] = b;
      }
    std::map<std::pair<int, int>, int> kinds;
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      if (!class_.buffers[i].per_micro_batch || !here(static_cast<int>(i))) continue;
      const auto [kind, fresh] = kinds.try_emplace({born[i], dead[i]}, static_cast<int>(slabs_.size()));
      if (fresh) slabs_.push_back(0);
      slab_of_[i] = kind->second;
      in_slab_[i] = slabs_[at(kind->second)];
      slabs_[at(kind->second)] += bytes(static_cast<int>(i));
    }
    pool_of_ = slab_pools(slabs_);
    for (std::size_t k = 0; k < slabs_.size(); ++k) {
      if (at(pool_of_[k]) >= pools_.size()) pools_.resize(at(pool_of_[k]) + 1);
      Pool& pool = pools_[at(pool_of_[k])];
      pool.bytes = std::max(pool.bytes, slabs_[k]);
    }
  }

  void blocks() {
    in_block_.assign(class_.buffers.size(), 0);
    for (const Block& block : class_.blocks) {
      std::vector<Interval> intervals;
      std::map<int, std::size_t> open;
      Profile profile;
      int fullest = 0;
      std::int64_t live = 0, within = 0, most = 0;  // within: of buffers that live within the block
      for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
        const Step& step = block.steps[at(s)];
        for (int index : step.births) {
          if (!here(index)) continue;
          live += bytes(index);
          profile.change += crosses(index) ? bytes(index) : 0;
          if (crosses(index)) continue;
          within += bytes(index);
          if (within > most) most = within, fullest = s;
          open[index] = intervals.size();
          intervals.push_back({index, s, static_cast<int>(block.steps.size()), bytes(index), 0});
        }
        if (live > profile.peak) profile.peak = live, profile.peak_step = s;
        for (int index : step.deaths) {
          if (!here(index)) continue;
          live -= bytes(index);
          profile.change -= crosses(index) ? bytes(index) : 0;
          if (crosses(index)) continue;
          within -= bytes(index);
          intervals[open.at(index)].to = s;
        }
      }
      scratch_ = std::max(scratch_, pack(intervals, most, fullest));
      for (const Interval& interval : intervals) in_block_[at(interval.buffer)] = interval.offset;
      profiles_.push_back(profile);
    }
  }

  // Regions, from the start: persistent, scratch of the running block, pools of slabs.
  void program() {
    std::map<std::pair<int, std::int32_t>, Slab> taken;  // by kind and micro-batch
    std::vector<std::int64_t> alive(slabs_.size(), 0), alive_at_peak = alive;
    std::vector<std::size_t> slot_of_birth;
    std::int64_t crossing_live = 0;
    StepRef peak{-1, 0};
    for (int e = 0; e < static_cast<int>(class_.program.size()); ++e) {
      const Entry& entry = class_.program[at(e)];
      const Block& block = class_.blocks[at(entry.block)];
      const Profile& profile = profiles_[at(entry.block)];
      if (persistent_ + crossing_live + profile.peak > result_.peak_live_bytes || peak.entry < 0) {
        result_.peak_live_bytes = persistent_ + crossing_live + profile.peak;
        peak = {e, profile.peak_step};
        alive_at_peak = alive;
      }
      for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
        const Step& step = block.steps[at(s)];
        // What a message frees it still reads: no message behind it may have that memory, or a ring of stages that send
        // and receive at a time would wait for itself. A compute step waits for such messages.
        if (step.kind == StepKind::compute)
          for (Pool& pool : pools_) {
            pool.free.insert(pool.free.end(), pool.leaving.begin(), pool.leaving.end());
            pool.leaving.clear();
          }
        for (int index : step.births) {
          if (!here(index)) continue;
          Placed placed{{e, s}, index, entry.micro_batch, persistent_ + in_block_[at(index)], bytes(index)};
          slot_of_birth.push_back(0);
          if (crosses(index)) {
            const int kind = slab_of_[at(index)];
            Pool& pool = pools_[at(pool_of_[at(kind)])];
            Slab& slab = taken[{kind, entry.micro_batch}];
            if (slab.alive++ == 0) {
              if (pool.free.empty()) pool.free.push_back(pool.slots++);
              slab.slot = pool.free.back();
              pool.free.pop_back();
              ++alive[at(kind)];
            }
            slot_of_birth.back() = slab.slot;
          }
          result_.births.push_back(placed);
        }
        for (int index : step.deaths) {
          if (!crosses(index) || !here(index)) continue;
          const int kind = slab_of_[at(index)];
          const auto slab = taken.find({kind, entry.micro_batch});
          if (--slab->second.alive > 0) continue;
          Pool& pool = pools_[at(pool_of_[at(kind)])];
          (step.kind == StepKind::compute ? pool.free : pool.leaving).push_back(slab->second.slot);
          taken.erase(slab);
          --alive[at(kind)];
        }
      }
      crossing_live += profile.change;
    }
    settle_slabs(slot_of_birth);
    purposes(peak, alive_at_peak);
  }

  // How many slots a pool needs is known at the end; only then where it begins.
  void settle_slabs(const std::vector<std::size_t>& slot_of_birth) {
    std::int64_t end = persistent_ + scratch_;
    for (Pool& pool : pools_) {
      pool.begin = end;
      end += static_cast<std::int64_t>(pool.slots) * pool.bytes;
    }
    result_.arena_bytes = end;
    for (std::size_t i = 0; i < result_.births.size(); ++i) {
      Placed& placed = result_.births[i];
      if (!crosses(placed.buffer)) continue;
      const Pool& pool = pools_[at(pool_of_[at(slab_of_[at(placed.buffer)])])];
      placed.offset =
          pool.begin + static_cast<std::int64_t>(slot_of_birth[i]) * pool.bytes + in_slab_[at(placed.buffer)];
    }
  }

  // What is alive at the peak, by purpose. The slabs that the entry finds are whole.
  void purposes(StepRef peak, const std::vector<std::int64_t>& slabs) {
    result_.by_purpose.assign(static_cast<std::size_t>(Purpose::scalars) + 1, 0);
    const auto add = [&](int index, std::int64_t amount) {
      result_.by_purpose[static_cast<std::size_t>(buffer(index).purpose)] += amount;
    };
    for (std::size_t i = 0; i < class_.buffers.size(); ++i) {
      const int index = static_cast<int>(i);
      if (!here(index)) continue;
      if (buffer(index).persistent) add(index, bytes(index));
      if (crosses(index)) add(index, bytes(index) * slabs[at(slab_of_[i])]);
    }
    if (peak.entry < 0) return;
    const Block& block = class_.blocks[at(class_.program[at(peak.entry)].block)];
    for (int s = 0; s <= peak.step; ++s) {
      for (int index : block.steps[at(s)].births)
        if (here(index)) add(index, bytes(index));
      if (s < peak.step)
        for (int index : block.steps[at(s)].deaths)
          if (here(index)) add(index, -bytes(index));
    }
  }

  struct Pool {
    std::int64_t bytes = 0, begin = 0;
    std::size_t slots = 0;
    std::vector<std::size_t> free, leaving;  ///< leaving: freed by a message that may be under way
  };
  struct Slab {
    std::size_t slot = 0;
    int alive = 0;
  };

  const RankClass& class_;
  Space space_;
  Placement result_;
  std::int64_t persistent_ = 0, scratch_ = 0;
  std::vector<std::int64_t> in_slab_, in_block_;  // by buffer
  std::vector<int> slab_of_;                      // by buffer: kind of slab
  std::vector<std::int64_t> slabs_;               // by kind
  std::vector<int> pool_of_;                      // by kind
  std::vector<Pool> pools_;
  std::vector<Profile> profiles_;
};

}  // namespace

std::vector<int> slab_pools(const std::vector<std::int64_t>& slabs) {
  constexpr std::int64_t kParts = 8;  // a slot may stay empty by an eighth
  std::vector<std::size_t> order(slabs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return slabs[a] > slabs[b]; });
  std::vector<int> pools(slabs.size(), -1);
  int pool = -1;
  std::int64_t largest = 0;
  for (const std::size_t i : order) {
    if (pool < 0 || slabs[i] < largest - largest / kParts) {
      ++pool;
      largest = slabs[i];
    }
    pools[i] = pool;
  }
  return pools;
}

Placement place(const RankClass& rank_class) {
  Placement all = Placing(rank_class, Space::device).run();
  bool merged = false;
  for (const Space space : {Space::host, Space::nvme}) {
    const bool used = std::any_of(rank_class.buffers.begin(), rank_class.buffers.end(),
                                  [space](const Buffer& b) { return b.space == space; });
    if (!used) continue;
    Placement one = Placing(rank_class, space).run();
    (space == Space::host ? all.host : all.nvme) = {one.arena_bytes, one.peak_live_bytes, std::move(one.by_purpose)};
    for (std::size_t i = 0; i < one.persistent.size(); ++i)
      if (one.persistent[i] >= 0) all.persistent[i] = one.persistent[i];
    all.births.insert(all.births.end(), one.births.begin(), one.births.end());
    merged = true;
  }
  if (merged)
    std::stable_sort(all.births.begin(), all.births.end(),
                     [](const Placed& a, const Placed& b) { return a.at < b.at; });
  return all;
}

}  // namespace orrery::plan
