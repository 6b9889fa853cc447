// Offsets of every buffer. Buffers that outlive their block are laid out in slabs: those born in one block and dying in
// the same other one form one slab per micro-batch in flight, taken at the first birth, given back at the last death.
#include "plan/schedule/place.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/periods.h"

namespace orrery::plan {

namespace {

using base::at;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Bytes alive inside one block: the peak, and the change that the block leaves behind for its micro-batch.
struct Profile {
  std::int64_t peak = 0;
  int peak_step = 0;
  std::int64_t change = 0;
};

class Placing {
 public:
  Placing(const RankClass& rank_class, Space space, bool keep_births)
      : class_(rank_class), space_(space), keep_births_(keep_births) {}

  Placement run() {
    persistent();
    slabs();
    blocks();
    program();
    return std::move(result_);
  }

 private:
  const Buffer& buffer(BufferId index) const { return class_.buffers[index]; }
  std::int64_t bytes(BufferId index) const { return aligned(buffer(index).bytes()); }
  std::int64_t all_versions(BufferId index) const { return buffer(index).versions * bytes(index); }
  bool crosses(BufferId index) const { return buffer(index).per_micro_batch; }
  bool here(BufferId index) const { return buffer(index).space == space_; }

  void persistent() {
    result_.persistent.assign(class_.buffers.size(), -1);
    for (const BufferId i : class_.buffers.keys()) {
      if (!class_.buffers[i].persistent || !here(i)) continue;
      result_.persistent[i] = persistent_;
      persistent_ += all_versions(i);
    }
  }

  // One kind of slab for each pair of the block where its buffers are born and the block where they die.
  void slabs() {
    in_slab_.assign(class_.buffers.size(), 0);
    slab_of_.assign(class_.buffers.size(), -1);
    base::ById<BufferId, int> born(class_.buffers.size(), -1), dead(class_.buffers.size(), -1);
    for (int b = 0; b < static_cast<int>(class_.blocks.size()); ++b)
      for (const Step& step : class_.blocks[at(b)].steps) {
        for (BufferId index : step.births) born[index] = b;
        for (BufferId index : step.deaths) dead[index] = b;
      }
    std::map<std::pair<int, int>, int> kinds;
    for (const BufferId i : class_.buffers.keys()) {
      if (!class_.buffers[i].per_micro_batch || !here(i)) continue;
      const auto [kind, fresh] = kinds.try_emplace({born[i], dead[i]}, static_cast<int>(slabs_.size()));
      if (fresh) slabs_.push_back(0);
      slab_of_[i] = kind->second;
      in_slab_[i] = slabs_[at(kind->second)];
      slabs_[at(kind->second)] += bytes(i);
    }
    if (steps_in_flight(class_) > 1) {  // each kind has its own ring
      pool_of_.resize(slabs_.size());
      std::iota(pool_of_.begin(), pool_of_.end(), 0);
    } else {
      pool_of_ = slab_pools(slabs_);
    }
    for (std::size_t k = 0; k < slabs_.size(); ++k) {
      if (at(pool_of_[k]) >= pools_.size()) pools_.resize(at(pool_of_[k]) + 1);
      Pool& pool = pools_[at(pool_of_[k])];
      pool.bytes = std::max(pool.bytes, slabs_[k]);
    }
  }

  void blocks() {
    in_block_.assign(class_.buffers.size(), 0);
    std::vector<std::vector<ScratchBuffer>> all;
    for (const Block& block : class_.blocks) {
      all.push_back(scratch_of(class_, block, space_));
      Profile profile;
      std::int64_t live = 0;
      for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
        const Step& step = block.steps[at(s)];
        for (BufferId index : step.births) {
          if (!here(index)) continue;
          live += bytes(index);
          profile.change += crosses(index) ? bytes(index) : 0;
        }
        if (live > profile.peak) profile.peak = live, profile.peak_step = s;
        for (BufferId index : step.deaths) {
          if (!here(index)) continue;
          live -= bytes(index);
          profile.change -= crosses(index) ? bytes(index) : 0;
        }
      }
      profiles_.push_back(profile);
    }
    scratch_ = pack_blocks(all);
    for (const std::vector<ScratchBuffer>& within : all)
      for (const ScratchBuffer& one : within) in_block_[one.buffer] = one.offset;
  }

  // Regions, from the start: persistent, scratch of the running block, pools of slabs. Buffers that live across steps
  // reach their final number in flight after as many training steps, and keep it.
  void program() {
    alive_.assign(slabs_.size(), 0);
    alive_at_peak_ = alive_;
    const int in_flight = steps_in_flight(class_);
    if (in_flight > 1) {
      const Walk all = unrolled(class_, 2 * static_cast<std::int64_t>(in_flight) + 1, false);
      std::vector<bool> placed_before(class_.program.size(), false);
      for (std::size_t w = 0; w < all.program.size(); ++w) {
        const std::int32_t e = all.origins[w].entry;
        walk(all.program[w], e, keep_births_ && !placed_before[at(e)]);
        placed_before[at(e)] = true;
      }
      settle_rings();
    } else {
      one_step();
      settle_slabs();
    }
    result_.births.fold();
    purposes(peak_, alive_at_peak_);
  }

  void one_step() {
    constexpr std::int64_t kMostLooks = 256;  // if the number of slabs has not settled by then, it never will
    Periods periods({&class_.program}, kMostLooks);
    for (std::size_t e = 0; e < class_.program.size(); ++e) {
      if (!keep_births_ && periods.due(e)) {
        const std::vector<std::size_t> here_now = {e};
        if (periods.look(here_now, state(periods.base(0, e))) == Periods::Seen::again) {
          e += static_cast<std::size_t>(periods.skip().entries.front());
          go_on(periods.skip().micro_batches);
        }
      }
      walk(class_.program[e], static_cast<std::int32_t>(e), keep_births_);
    }
  }

  // The slots that a pool needs do not depend on which ones are taken.
  std::vector<std::int64_t> state(std::int32_t base) const {
    std::vector<std::int64_t> out = alive_;
    for (const Pool& pool : pools_)
      out.insert(out.end(), {static_cast<std::int64_t>(pool.slots), static_cast<std::int64_t>(pool.free.size()),
                             static_cast<std::int64_t>(pool.leaving.size())});
    for (const auto& [key, slab] : taken_) out.insert(out.end(), {key.first, key.second - base, slab.alive});
    return out;
  }
  void go_on(std::int32_t micro_batches) {
    std::map<std::pair<int, std::int32_t>, Slab> taken;
    for (const auto& [key, slab] : taken_) taken[{key.first, key.second + micro_batches}] = slab;
    taken_ = std::move(taken);
  }

  // Walks one entry of the program; `keep`: records where its births lie.
  void walk(const Entry& entry, std::int32_t e, bool keep) {
    const Block& block = class_.blocks[at(entry.block)];
    const Profile& profile = profiles_[at(entry.block)];
    if (persistent_ + crossing_live_ + profile.peak > result_.peak_live_bytes || peak_.entry < 0) {
      result_.peak_live_bytes = persistent_ + crossing_live_ + profile.peak;
      peak_ = {entry.block, profile.peak_step};
      alive_at_peak_ = alive_;
    }
    for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
      const Step& step = block.steps[at(s)];
      // A message still reads what it frees: no later message may have that memory, or a ring of stages that send and
      // receive at the same time would wait for itself. Compute steps wait for such messages.
      if (step.kind == StepKind::compute)
        for (Pool& pool : pools_) {
          pool.free.insert(pool.free.end(), pool.leaving.begin(), pool.leaving.end());
          pool.leaving.clear();
        }
      for (BufferId index : step.births) {
        if (!here(index)) continue;
        Placed placed{{e, s}, index, entry.micro_batch, persistent_ + in_block_[index], bytes(index)};
        if (crosses(index)) placed.offset = take(index, entry.micro_batch);
        if (keep) result_.births.push_back(placed);
      }
      for (BufferId index : step.deaths)
        if (crosses(index) && here(index)) give_back(index, entry.micro_batch, step.kind == StepKind::compute);
    }
    crossing_live_ += profile.change;
  }

  // Offset of a birth within its pool.
  std::int64_t take(BufferId index, std::int32_t micro_batch) {
    const int kind = slab_of_[index];
    Pool& pool = pools_[at(pool_of_[at(kind)])];
    Slab& slab = taken_[{kind, micro_batch}];
    if (slab.alive++ == 0) {
      if (pool.free.empty()) pool.free.push_back(pool.slots++);
      slab.slot = pool.free.back();
      pool.free.pop_back();
      ++alive_[at(kind)];
      const std::int32_t oldest = taken_.lower_bound({kind, 0})->first.second;
      pool.ring = std::max(pool.ring, std::abs(micro_batch - oldest) + 1);
    }
    // The last slot may use less than its size.
    const std::int64_t offset = static_cast<std::int64_t>(slab.slot) * pool.bytes + in_slab_[index];
    pool.extent = std::max(pool.extent, offset + bytes(index));
    return offset;
  }

  void give_back(BufferId index, std::int32_t micro_batch, bool at_once) {
    const int kind = slab_of_[index];
    const auto slab = taken_.find({kind, micro_batch});
    if (--slab->second.alive > 0) return;
    Pool& pool = pools_[at(pool_of_[at(kind)])];
    (at_once ? pool.free : pool.leaving).push_back(slab->second.slot);
    taken_.erase(slab);
    --alive_[at(kind)];
  }

  // The number of slots that a pool needs is known only at the end, and with it where each pool begins.
  void settle_slabs() {
    std::int64_t end = persistent_ + scratch_;
    result_.arena_bytes = end;
    for (Pool& pool : pools_) {
      pool.begin = end;
      end += static_cast<std::int64_t>(pool.slots) * pool.bytes;
      if (pool.extent > 0) result_.arena_bytes = std::max(result_.arena_bytes, pool.begin + pool.extent);
    }
    result_.births.change_all([&](Placed& placed) {
      if (crosses(placed.buffer)) placed.offset += pools_[at(pool_of_[at(slab_of_[placed.buffer])])].begin;
    });
  }

  // Micro-batches pass in order: those alive at once have consecutive numbers, so a ring with as many places has one
  // for each.
  void settle_rings() {
    std::int64_t end = persistent_ + scratch_;
    for (Pool& pool : pools_) {
      pool.begin = end;
      end += pool.ring * pool.bytes;
    }
    result_.arena_bytes = end;
    result_.births.change_all([&](Placed& placed) {
      if (!crosses(placed.buffer)) return;
      const Pool& pool = pools_[at(pool_of_[at(slab_of_[placed.buffer])])];
      placed.offset = pool.begin + in_slab_[placed.buffer];
      placed.ring = pool.ring;
      placed.stride = pool.bytes;
    });
  }

  // Bytes alive at the peak, by purpose. Slabs taken before the entry count as whole.
  // `peak`: a block and a step of it.
  void purposes(StepRef peak, const std::vector<std::int64_t>& slabs) {
    result_.by_purpose.assign(static_cast<std::size_t>(Purpose::scalars) + 1, 0);
    const auto add = [&](BufferId index, std::int64_t amount) {
      result_.by_purpose[static_cast<std::size_t>(buffer(index).purpose)] += amount;
    };
    for (const BufferId index : class_.buffers.keys()) {
      if (!here(index)) continue;
      if (buffer(index).persistent) add(index, all_versions(index));
      if (crosses(index)) add(index, bytes(index) * slabs[at(slab_of_[index])]);
    }
    if (peak.entry < 0) return;
    const Block& block = class_.blocks[at(peak.entry)];
    for (int s = 0; s <= peak.step; ++s) {
      for (BufferId index : block.steps[at(s)].births)
        if (here(index)) add(index, bytes(index));
      if (s < peak.step)
        for (BufferId index : block.steps[at(s)].deaths)
          if (here(index)) add(index, -bytes(index));
    }
  }

  struct Pool {
    std::int64_t bytes = 0, begin = 0;
    std::int64_t extent = 0;  ///< highest end of anything in it
    std::size_t slots = 0;
    std::int32_t ring = 0;                   ///< widest range of micro-batches alive at once
    std::vector<std::size_t> free, leaving;  ///< leaving: freed by a message that may still be under way
  };
  struct Slab {
    std::size_t slot = 0;
    int alive = 0;
  };

  const RankClass& class_;
  Space space_;
  bool keep_births_;
  Placement result_;
  std::int64_t persistent_ = 0, scratch_ = 0;
  base::ById<BufferId, std::int64_t> in_slab_, in_block_;
  base::ById<BufferId, int> slab_of_;  // kind of slab
  std::vector<std::int64_t> slabs_;    // by kind
  std::vector<int> pool_of_;           // by kind
  std::vector<Pool> pools_;
  std::vector<Profile> profiles_;
  std::map<std::pair<int, std::int32_t>, Slab> taken_;  // by kind and micro-batch
  std::vector<std::int64_t> alive_, alive_at_peak_;     // by kind
  std::int64_t crossing_live_ = 0;
  StepRef peak_{-1, 0};  // a block and a step of it
};

// Births of two memories, merged into program order.
Births merged(const Births& some, const Births& others) {
  Births out;
  auto a = some.begin(), b = others.begin();
  while (a != some.end() || b != others.end())
    if (b == others.end() || (a != some.end() && !((*b).at < (*a).at)))
      out.push_back(*a++);
    else
      out.push_back(*b++);
  out.fold();
  return out;
}

Placement placement_of(const RankClass& rank_class, bool births) {
  Placement all = Placing(rank_class, Space::device, births).run();
  for (const Space space : {Space::host, Space::nvme}) {
    const bool used = std::any_of(rank_class.buffers.begin(), rank_class.buffers.end(),
                                  [space](const Buffer& b) { return b.space == space; });
    if (!used) continue;
    Placement one = Placing(rank_class, space, births).run();
    (space == Space::host ? all.host : all.nvme) = {one.arena_bytes, one.peak_live_bytes, std::move(one.by_purpose)};
    for (std::size_t i = 0; i < one.persistent.size(); ++i)
      if (one.persistent[i] >= 0) all.persistent[i] = one.persistent[i];
    if (births) all.births = merged(all.births, one.births);
  }
  return all;
}

}  // namespace

std::vector<ScratchBuffer> scratch_of(const RankClass& rank_class, const Block& block, Space space) {
  std::vector<ScratchBuffer> within;
  std::map<BufferId, std::size_t> open;
  const auto computes = [](const Step& step) { return step.kind == StepKind::compute; };
  const auto in_block = [&](BufferId index) {
    return rank_class.buffers[index].space == space && !rank_class.buffers[index].per_micro_batch;
  };
  const int end = static_cast<int>(block.steps.size());
  const int first =
      static_cast<int>(std::find_if(block.steps.begin(), block.steps.end(), computes) - block.steps.begin());
  const int last =
      static_cast<int>(block.steps.rend() - std::find_if(block.steps.rbegin(), block.steps.rend(), computes)) - 1;
  for (int s = 0; s < end; ++s) {
    const Step& step = block.steps[at(s)];
    for (const BufferId index : step.births) {
      if (!in_block(index)) continue;
      open[index] = within.size();
      within.push_back({index, s, end, aligned(rank_class.buffers[index].bytes())});
      within.back().arrives = s < first;
    }
    for (const BufferId index : step.deaths) {
      if (!in_block(index)) continue;
      within[open.at(index)].to = s;
      within[open.at(index)].leaves = s > last && step.kind == StepKind::send;
    }
  }
  return within;
}

std::vector<int> slab_pools(const std::vector<std::int64_t>& slabs) {
  constexpr std::int64_t kParts = 8;  // a slot may be up to an eighth larger than its slab
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
  return placement_of(rank_class, true);
}

Placement sizes_of(const RankClass& rank_class) {
  return placement_of(rank_class, false);
}

Placement place_beside(const RankClass& training, const Placement& placed, const RankClass& evaluation) {
  const auto persistent_end = [](const RankClass& rank_class, const Placement& placement, Space space) {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < rank_class.buffers.size(); ++i)
      if (const Buffer& b = rank_class.buffers[i]; b.persistent && b.space == space)
        end = std::max(end, placement.persistent[i] + b.versions * aligned(b.bytes()));
    return end;
  };
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < training.buffers.size(); ++i)
    if (training.buffers[i].persistent) known[training.buffers[i].name] = i;
  Placement result = place(evaluation);
  std::int64_t shift[kSpaces];
  for (const Space space : {Space::device, Space::host, Space::nvme})
    shift[static_cast<std::size_t>(space)] =
        persistent_end(training, placed, space) - persistent_end(evaluation, result, space);
  for (std::size_t i = 0; i < evaluation.buffers.size(); ++i) {
    const Buffer& mine = evaluation.buffers[i];
    if (!mine.persistent) continue;
    const auto theirs = known.find(mine.name);
    ENSURE(theirs != known.end() && training.buffers[theirs->second].elements == mine.elements &&
               training.buffers[theirs->second].space == mine.space,
           "the training step has no buffer {} of {} elements", mine.name, mine.elements);
    result.persistent[i] = placed.persistent[theirs->second];
  }
  result.births.change_all(
      [&](Placed& birth) { birth.offset += shift[static_cast<std::size_t>(evaluation.buffers[birth.buffer].space)]; });
  const auto larger = [&](Space space, std::int64_t& mine, std::int64_t theirs) {
    mine = std::max(theirs, mine + shift[static_cast<std::size_t>(space)]);
  };
  larger(Space::device, result.arena_bytes, placed.arena_bytes);
  larger(Space::host, result.host.arena_bytes, placed.host.arena_bytes);
  larger(Space::nvme, result.nvme.arena_bytes, placed.nvme.arena_bytes);
  return result;
}

}  // namespace orrery::plan
