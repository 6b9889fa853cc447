#pragma once
/// Buffers that live only within one block of a schedule, as intervals of the block's steps, without lowering it. A
/// placement packs them into its scratch region (plan/schedule/pack.h).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/outline/outline.h"
#include "plan/outline/turns.h"
#include "plan/schedule/pack.h"

namespace orrery::cost {

/// The bytes that buffers with such intervals need.
struct ScratchBytes {
  double alive = 0;   ///< the most that are alive at the same time
  double packed = 0;  ///< with the holes that packing leaves
};
[[nodiscard]] inline ScratchBytes larger(const ScratchBytes& a, const ScratchBytes& b) {
  return {std::max(a.alive, b.alive), std::max(a.packed, b.packed)};
}
/// Over a class's blocks. `packs`: false leaves `packed` 0, for callers that do not need it.
[[nodiscard]] ScratchBytes scratch_bytes(std::vector<std::vector<plan::ScratchBuffer>> blocks, bool packs = true);

/// Buffers of a block by the memory of an outline that they are; -1: none.
using LivesByMemory = std::array<int, plan::kMemories>;
[[nodiscard]] inline LivesByMemory none_of_memory() {
  LivesByMemory none;
  none.fill(-1);
  return none;
}
/// An outline and the buffers of a block that its slots are; -1: memory that outlives the block.
struct OutlineLives {
  plan::Outline outline;
  std::vector<int> buffers = {};
};

/// Notes a block's steps in order, and who uses what: a buffer lives from its first use to its last. Places are
/// numbers: each step has one, and one more on either side, for what happens just before it and just after it.
class BlockLives {
 public:
  /// The next step. `computes`: it is a compute step; messages before the first of these arrive from other blocks.
  int step(bool computes) {
    const int here = at_;
    at_ += kStep;
    if (computes && first_compute_ < 0) first_compute_ = here;
    return here;
  }
  /// A compute step that step() has not added.
  void compute(int place) { first_compute_ = first_compute_ < 0 ? place : std::min(first_compute_, place); }
  /// The place of the last step.
  [[nodiscard]] int last() const { return at_ - kStep; }
  [[nodiscard]] static int behind(int place) { return place + 1; }
  [[nodiscard]] static int ahead(int place) { return place - 1; }

  /// A buffer that nothing uses yet.
  int buffer(double bytes);
  /// `place`: at or behind those of earlier uses.
  void use(int buffer, int place);
  [[nodiscard]] int last_use(int buffer) const { return within_[static_cast<std::size_t>(buffer)].to; }
  /// The same in one call. `leaves`: dies by a message after the last compute step.
  void live(int from, int to, double bytes, bool leaves = false);

  /// Makes buffers for an outline's temporary memory; those of `known` become as large as its slots.
  [[nodiscard]] OutlineLives outlined(plan::Outline outline, const LivesByMemory& known);
  /// What a part's items use. `place`: the step that its operators join; -1: each item is a step.
  void use(const OutlineLives& outline, int part, int place = -1);

  /// A run of a layer's compute steps (plan/schedule/rewrite.h), in order.
  void run(int first, int last) { runs_.push_back({first, last}); }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }
  /// The place of copies that arrive `prefetch` runs before run `index`.
  [[nodiscard]] int fetched(std::size_t index, int prefetch) const {
    const auto before = static_cast<std::size_t>(prefetch);
    return index > before ? ahead(runs_[index - before].first) : 0;
  }
  /// A copy takes the buffer away after its last use so far. It lives until the run after the next one begins, or until
  /// the last run has ended; with no run behind the use, until the copy ends.
  void leave(int buffer) { late_.push_back(buffer); }
  void live_behind(int from, int place, double bytes);

  /// All intervals of the block, which ends with this call.
  [[nodiscard]] std::vector<plan::ScratchBuffer> take();

 private:
  static constexpr int kStep = 3;
  struct Run {
    int first = 0, last = 0;
  };
  static constexpr int kUnused = -1;
  [[nodiscard]] plan::ScratchBuffer& at(int buffer) { return within_[static_cast<std::size_t>(buffer)]; }
  void number_places();
  std::vector<plan::ScratchBuffer> within_;
  std::vector<Run> runs_;
  std::vector<int> late_;
  int at_ = kStep, first_compute_ = -1;
};

/// Reductions of buckets within a block, as their outlines say.
class ReductionLives {
 public:
  /// `on_host`: sums are on the host, to which a copy takes what the last part reads. `keeps`: full gradients stay
  /// until they are added to shards (plan/lower/shard_sums.h).
  explicit ReductionLives(BlockLives& block, bool on_host = false, bool keeps = false)
      : block_(block), on_host_(on_host), keeps_(keeps) {}

  /// Part by part, in turn with the other buckets' parts. `made`: the place where full gradients that only this block
  /// has are made; -1: they last.
  void add_in_turn(plan::Outline outline, int made = -1) {
    const int parts = outline.parts;
    turns_.add(outlined(std::move(outline), made).lives, parts);
  }
  /// All parts but the last, which follows with the next call of add_up().
  void add_late(plan::Outline outline, int made);
  void add_up();
  /// The remaining parts of all buckets.
  void finish();

 private:
  struct One {
    OutlineLives lives;
    int gradients = -1;
  };
  struct Visit {
    BlockLives* block;
    void operator()(const OutlineLives& one, int part) const { block->use(one, part); }
  };
  [[nodiscard]] One outlined(plan::Outline outline, int made);

  BlockLives& block_;
  bool on_host_, keeps_;
  std::vector<One> pending_;
  plan::Turns<OutlineLives, Visit> turns_{Visit{&block_}};
};

}  // namespace orrery::cost
