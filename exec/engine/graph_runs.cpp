// Cuts a traced step into runs.
#include "exec/engine/graph_runs.h"

#include <algorithm>
#include <map>
#include <set>

namespace orrery::exec {
namespace {

class Cutter {
 public:
  explicit Cutter(const std::vector<TracedStep>& steps) : steps_(steps) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].message >= 0) begun_[steps[i].message] = i;
      for (const std::int64_t message : steps[i].ordered) joined_.try_emplace(message, i);
      const bool orders_others = std::any_of(steps[i].ordered.begin(), steps[i].ordered.end(),
                                             [&](std::int64_t m) { return m != steps[i].message; });
      if (steps[i].message >= 0 && (!steps[i].capturable || orders_others)) outside_.insert(steps[i].message);
    }
  }

  /// Moves messages out of graphs until all that remain may be in one.
  std::vector<GraphRun> cut() {
    while (true) {
      const std::vector<GraphRun> runs = attempt();
      const std::size_t before = outside_.size();
      for (const GraphRun& run : runs)
        for (std::size_t i = run.first; i < run.last; ++i)
          if (steps_[i].message >= 0 && !fits(i, run)) outside_.insert(steps_[i].message);
      if (outside_.size() == before) return runs;
    }
  }

 private:
  [[nodiscard]] bool begun_in(std::int64_t message, std::size_t first, std::size_t last) const {
    const auto found = begun_.find(message);
    return found != begun_.end() && found->second >= first && found->second < last;
  }

  /// Whether the message at `i` ends within the run, and does not begin after a message that is still under way
  /// outside.
  [[nodiscard]] bool fits(std::size_t i, const GraphRun& run) const {
    const auto joined = joined_.find(steps_[i].message);
    const bool ends = joined == joined_.end() ? run.last == steps_.size() : joined->second < run.last;
    if (!ends) return false;
    return std::all_of(steps_[i].behind.begin(), steps_[i].behind.end(),
                       [&](std::int64_t other) { return begun_in(other, run.first, run.last); });
  }

  [[nodiscard]] std::vector<GraphRun> attempt() const {
    std::vector<GraphRun> runs;
    GraphRun run;
    const auto close = [&](std::size_t next) {
      if (run.first < run.last) runs.push_back(run);
      run = {next, next};
    };
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const TracedStep& step = steps_[i];
      if (!step.capturable || outside_.count(step.message) > 0) {
        close(i + 1);
        continue;
      }
      const bool waits_outside = std::any_of(step.ordered.begin(), step.ordered.end(),
                                             [&](std::int64_t m) { return !begun_in(m, run.first, i + 1); });
      if ((waits_outside || step.begins) && run.first < run.last) close(i);
      run.last = i + 1;
    }
    close(steps_.size());
    return runs;
  }

  const std::vector<TracedStep>& steps_;
  std::map<std::int64_t, std::size_t> begun_,
      joined_;  // by message: the step that starts it; the step ordered after it
  std::set<std::int64_t> outside_;
};

}  // namespace

std::vector<GraphRun> graph_runs(const std::vector<TracedStep>& steps, std::int64_t least_operators) {
  std::vector<GraphRun> runs = Cutter(steps).cut();
  std::erase_if(runs, [&](const GraphRun& run) {
    std::int64_t operators = 0;
    for (std::size_t i = run.first; i < run.last; ++i) operators += steps[i].operators;
    return operators < least_operators;
  });
  return runs;
}

}  // namespace orrery::exec
