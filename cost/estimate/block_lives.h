#pragma once
/// What lives only within one block of a schedule, as intervals of its steps, without lowering it: what a placement
/// packs into its scratch region (plan/schedule/pack.h).
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

/// Bytes of memory in which intervals lie.
struct ScratchBytes {
  double alive = 0;   ///< the most at once
  double packed = 0;  ///< with the holes that packing leaves
};
[[nodiscard]] inline ScratchBytes larger(const ScratchBytes& a, const ScratchBytes& b) {
  return {std::max(a.alive, b.alive), std::max(a.packed, b.packed)};
}
/// Of a class's blocks. `packs`: false leaves `packed` 0, for those who do not ask for it.
[[nodiscard]] ScratchBytes scratch_bytes(std::vector<std::vector<plan::Scratch>> blocks, bool packs = true);

/// Notes a block's steps in order. Places are numbers: a step's, and between it and its neighbours one more for what
/// happens right behind it and one for what happens right ahead of it.
class BlockLives {
 public:
  /// The next step. `computes`: messages ahead of the first such step arrive.
  int step(bool computes) {
    const int here = at_;
    at_ += kStep;
    if (computes && first_compute_ < 0) first_compute_ = here;
    return here;
  }
  /// A compute step beside the others.
  void compute(int place) { first_compute_ = first_compute_ < 0 ? place : std::min(first_compute_, place); }
  /// The place of the last step.
  [[nodiscard]] int last() const { return at_ - kStep; }
  [[nodiscard]] static int behind(int place) { return place + 1; }
  [[nodiscard]] static int ahead(int place) { return place - 1; }

  /// Gradients that a block zeroes have their buffers before whatever else its step makes. `leaves`: by a message
  /// behind the last compute step.
  enum class Kind : std::uint8_t { other, gradients, leaves };
  void live(int from, int to, double bytes, Kind kind = Kind::other);

  /// A run of a layer's compute steps (plan/schedule/rewrite.h), in order.
  void run(int first, int last) { runs_.push_back({first, last}); }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }
  /// The place of copies that come in `prefetch` runs ahead of run `index`.
  [[nodiscard]] int fetched(std::size_t index, int prefetch) const {
    const auto before = static_cast<std::size_t>(prefetch);
    return index > before ? ahead(runs_[index - before].first) : 0;
  }
  /// What a copy takes away behind `place` lives until the run after next begins, or the last one has ended; without
  /// a run behind it until the copy ends.
  void live_behind(int from, int place, double bytes, Kind kind = Kind::other) {
    late_.push_back({from, place, bytes, kind});
  }

  /// All of it. The block is noted down.
  [[nodiscard]] std::vector<plan::Scratch> take();

 private:
  static constexpr int kStep = 3;
  struct Run {
    int first = 0, last = 0;
  };
  struct Late {
    int from = 0, place = 0;
    double bytes = 0;
    Kind kind = Kind::other;
  };
  void number_places();
  std::vector<plan::Scratch> within_;
  std::vector<Run> runs_;
  std::vector<Late> late_;
  int at_ = kStep, first_compute_ = -1;
};

/// Reductions of buckets within a block, as their outlines say.
class ReductionLives {
 public:
  struct One {
    plan::Outline outline;
    int made = -1;  ///< where full gradients that only this block has are made; -1: they last
    std::vector<std::pair<int, int>> uses = {};  ///< by slot: first and last place
    int copied = -1;  ///< the place where a copy takes what the last part reads to the host; -1: none does
  };
  /// `on_host`: sums are on the host. `keeps`: full gradients stay until they are added up (plan/lower/shard_sums.h).
  ReductionLives(BlockLives& block, bool on_host, bool keeps) : block_(block), on_host_(on_host), keeps_(keeps) {}

  /// Part by part, in turns with the other buckets'.
  void add_in_turn(plan::Outline outline, int made) {
    const int parts = outline.parts;
    turns_.add(&all_.emplace_back(One{std::move(outline), made}), parts);
  }
  /// All but its last part, which follows with the next call of add_up().
  void add_late(plan::Outline outline, int made);
  void add_up();
  /// The rest of all, and what lived meanwhile.
  void finish();

 private:
  struct Visit {
    ReductionLives* to;
    void operator()(One* one, int part) const { to->visit(*one, part, -1); }
  };
  /// `place`: of the step that its operators join; -1: each item is a step.
  void visit(One& one, int part, int place);

  BlockLives& block_;
  bool on_host_, keeps_;
  std::list<One> all_;
  std::vector<One*> pending_;
  plan::Turns<One*, Visit> turns_{Visit{this}};
};

}  // namespace orrery::cost
