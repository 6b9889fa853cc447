#pragma once
/// Buffers that live only within one block of a schedule, as intervals of the block's steps, without lowering it. A
/// placement packs them into its scratch region (plan/schedule/pack.h).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
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

/// Notes a block's steps in order. Places are numbers: each step has one, and one more on either side, for what happens
/// just before it and just after it.
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

  /// `leaves`: dies by a message after the last compute step.
  void live(int from, int to, double bytes, bool leaves = false);

  /// A run of a layer's compute steps (plan/schedule/rewrite.h), in order.
  void run(int first, int last) { runs_.push_back({first, last}); }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }
  /// The place of copies that arrive `prefetch` runs before run `index`.
  [[nodiscard]] int fetched(std::size_t index, int prefetch) const {
    const auto before = static_cast<std::size_t>(prefetch);
    return index > before ? ahead(runs_[index - before].first) : 0;
  }
  /// A buffer that a copy takes away after `place`. It lives until the run after the next one begins, or until the last
  /// run has ended; with no run after `place`, until the copy ends.
  void live_behind(int from, int place, double bytes) { late_.push_back({from, place, bytes}); }

  /// All intervals of the block, which ends with this call.
  [[nodiscard]] std::vector<plan::ScratchBuffer> take();

 private:
  static constexpr int kStep = 3;
  struct Run {
    int first = 0, last = 0;
  };
  struct Late {
    int from = 0, place = 0;
    double bytes = 0;
  };
  void number_places();
  std::vector<plan::ScratchBuffer> within_;
  std::vector<Run> runs_;
  std::vector<Late> late_;
  int at_ = kStep, first_compute_ = -1;
};

/// Reductions of buckets within a block, as their outlines say.
class ReductionLives {
 public:
  struct One {
    plan::Outline outline;
    int made = -1;  ///< place where full gradients that only this block has are made; -1: they last
    std::vector<std::pair<int, int>> uses = {};  ///< by slot: first and last place
    int copied = -1;  ///< place where a copy takes to the host what the last part reads; -1: there is no such copy
  };
  /// `on_host`: sums are on the host. `keeps`: full gradients stay until they are added to shards
  /// (plan/lower/shard_sums.h).
  ReductionLives(BlockLives& block, bool on_host, bool keeps) : block_(block), on_host_(on_host), keeps_(keeps) {}

  /// Part by part, in turn with the other buckets' parts.
  void add_in_turn(plan::Outline outline, int made) {
    const int parts = outline.parts;
    turns_.add(&all_.emplace_back(One{std::move(outline), made}), parts);
  }
  /// All parts but the last, which follows with the next call of add_up().
  void add_late(plan::Outline outline, int made);
  void add_up();
  /// The remaining parts of all buckets, and the memory that lived meanwhile.
  void finish();

 private:
  struct Visit {
    ReductionLives* to;
    void operator()(One* one, int part) const { to->visit(*one, part, -1); }
  };
  /// `place`: the step that its operators join; -1: each item is a step.
  void visit(One& one, int part, int place);

  BlockLives& block_;
  bool on_host_, keeps_;
  std::list<One> all_;
  std::vector<One*> pending_;
  plan::Turns<One*, Visit> turns_{Visit{this}};
};

}  // namespace orrery::cost
