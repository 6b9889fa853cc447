#pragma once
/// Decides which steps of a training step go into graphs. One training step is walked without graphs and traced. The
/// trace shows what each step had to wait for; the program never changes, so this holds for all such training steps.
///
/// A graph is a run of steps that the device can do without the host. It begins when launched and ends when all of it
/// has ended. So a message is in a graph only if compute in the same graph is ordered after it. A message that outlives
/// the run stays between graphs: otherwise the next graph would wait for a peer that may wait for this rank. For the
/// same reason, a step that waits for a message outside begins a new graph. After the last step everything is waited
/// for and no graph follows, so the run that ends there includes messages that no step waited for.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::exec {

/// One executed step of the walk.
struct TracedStep {
  bool capturable = false;            ///< compute on the device without the host, or a queued message
  std::int64_t message = -1;          ///< its number; -1: a compute step
  bool begins = false;                ///< the host waits or works before it (a copy to its memory): a graph begins here
  std::vector<std::int64_t> ordered;  ///< compute was ordered after these messages here
  std::vector<std::int64_t> behind;   ///< a message began after these
  std::int64_t operators = 0;
};

/// Steps [first, last) of the walk.
struct GraphRun {
  std::size_t first = 0, last = 0;
  bool operator==(const GraphRun&) const = default;
};

/// Runs of at least `least_operators` operators, in order, each as long as possible. `steps` are those of a whole
/// training step.
[[nodiscard]] std::vector<GraphRun> graph_runs(const std::vector<TracedStep>& steps, std::int64_t least_operators = 2);

}  // namespace orrery::exec
