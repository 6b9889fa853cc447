#pragma once
/// Tools of passes over a lowered class: where buffers are used, steps put between others, operands renamed. Places are
/// those of the class as it was found until apply(). Private to plan/.
#include <algorithm>
#include <utility>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A step of a block; blocks stand in the order in which a micro-batch runs through them.
struct Place {
  int block = -1, step = -1;
  auto operator<=>(const Place&) const = default;
};

[[nodiscard]] inline bool of_backward(const Step& step) {
  return step.phase == Phase::backward || step.phase == Phase::recompute;
}
/// Into a step's reads, writes or deaths, where each stands once.
inline void note(std::vector<int>& list, int buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

struct Life {
  Place birth, death;       ///< of a persistent buffer: none
  std::vector<Place> uses;  ///< in order
};
[[nodiscard]] std::vector<Life> lives_of(const RankClass& rank_class);

/// Computations of a block that belong to one layer, one after the other. In a block without passes over layers every
/// computation is a run by itself.
struct Run {
  std::int32_t layer = -1;
  int first = 0, last = 0;  ///< compute steps
};
[[nodiscard]] std::vector<Run> runs_of(const Block& block);
/// Which of its block's runs a step belongs to, or comes ahead of; -1: it stands behind the last.
[[nodiscard]] int run_at(const std::vector<Run>& runs, const Place& place);
/// Where a step goes that is to come behind the run that follows `place`; step -1: no run follows.
[[nodiscard]] Place behind_next_run(const std::vector<Run>& runs, const Place& place);
/// A step that computes nothing: it waits for copies of buffers and frees them.
[[nodiscard]] Step release_of(std::vector<int> buffers, Phase phase);

class Rewrite {
 public:
  explicit Rewrite(RankClass& rank_class) : class_(rank_class) {}

  [[nodiscard]] Step& step(const Place& place) {
    return class_.blocks[static_cast<std::size_t>(place.block)].steps[static_cast<std::size_t>(place.step)];
  }
  [[nodiscard]] const Step& step(const Place& place) const {
    return class_.blocks[static_cast<std::size_t>(place.block)].steps[static_cast<std::size_t>(place.step)];
  }

  /// A copy of a whole buffer into another, of the layer and phase of `beside`.
  [[nodiscard]] Step copy(Stream stream, int source, int target, const Step& beside) const;
  /// Steps put at one place stand there in the order in which they were given.
  void insert_before(const Place& place, Step step) { insertions_.push_back({place, std::move(step)}); }
  void insert_after(const Place& place, Step step) {
    insertions_.push_back({{place.block, place.step + 1}, std::move(step)});
  }
  /// The step uses `to` where it used `from`. Views are not shared with other steps afterwards.
  void replace(const Place& place, int from, int to);
  void replace_death(const Place& place, int from, int to);
  void apply();

 private:
  RankClass& class_;
  std::vector<std::pair<Place, Step>> insertions_;
};

}  // namespace orrery::plan
