#pragma once
/// Tools for passes over a lowered class: they find uses of buffers, insert steps and rename operands. Until apply(),
/// places refer to the class as it was before the pass. Private to plan/.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A step of a block; blocks are in the order in which a micro-batch runs through them.
struct Place {
  int block = -1, step = -1;
  auto operator<=>(const Place&) const = default;
};

[[nodiscard]] inline bool of_backward(const Step& step) {
  return step.phase == Phase::backward || step.phase == Phase::recompute;
}
/// Adds a buffer to a step's reads, writes or deaths, unless it is there already.
inline void note(std::vector<BufferId>& list, BufferId buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

struct Life {
  Place birth, death;       ///< none for a persistent buffer
  std::vector<Place> uses;  ///< in order
};
[[nodiscard]] base::ById<BufferId, Life> lives_of(const RankClass& rank_class);

/// Consecutive computations of a block that belong to one layer. In a block without passes over layers every
/// computation is a run by itself.
struct Run {
  LayerId layer;
  int first = 0, last = 0;  ///< compute steps
};
[[nodiscard]] std::vector<Run> runs_of(const Block& block);
/// Index of the run that a step belongs to or precedes; -1: it comes after the last run.
[[nodiscard]] int run_at(const std::vector<Run>& runs, const Place& place);
/// Where to insert a step that must come after the run that follows `place`; step -1: no run follows.
[[nodiscard]] Place behind_next_run(const std::vector<Run>& runs, const Place& place);
/// A step that computes nothing: it waits for copies of buffers and frees them.
[[nodiscard]] Step release_of(std::vector<BufferId> buffers, Phase phase);

class Rewrite {
 public:
  explicit Rewrite(RankClass& rank_class) : class_(rank_class) {}

  [[nodiscard]] Step& step(const Place& place) {
    return class_.blocks[static_cast<std::size_t>(place.block)].steps[static_cast<std::size_t>(place.step)];
  }
  [[nodiscard]] const Step& step(const Place& place) const {
    return class_.blocks[static_cast<std::size_t>(place.block)].steps[static_cast<std::size_t>(place.step)];
  }

  /// A copy of a whole buffer into another, with the layer and phase of `beside`.
  [[nodiscard]] Step copy(Stream stream, BufferId source, BufferId target, const Step& beside) const;
  /// Steps inserted at one place keep the order in which they were given.
  void insert_before(const Place& place, Step step) { insertions_.push_back({place, std::move(step)}); }
  void insert_after(const Place& place, Step step) {
    insertions_.push_back({{place.block, place.step + 1}, std::move(step)});
  }
  /// Makes the step use `to` instead of `from`. Afterwards it shares no views with other steps.
  void replace(const Place& place, BufferId from, BufferId to);
  void replace_death(const Place& place, BufferId from, BufferId to);
  void apply();

 private:
  RankClass& class_;
  std::deque<std::pair<Place, Step>> insertions_;  ///< not moved while there come more
};

}  // namespace orrery::plan
