#pragma once
/// Which steps of a training step go into graphs. One training step is walked without graphs and traced; the trace says
/// what each step had to wait for, and since a program is the same every time, it says so for all steps like it.
///
/// A graph is a run of steps that the device can do without the host. It begins when it is launched and has ended when
/// all of it has, so a message is in it only if compute in the same graph is ordered behind that message: a message
/// that outlives the run stands between graphs, or the next graph would wait for a peer that may wait for this rank.
/// For the same reason a step that waits for a message outside begins a new graph. Behind the last step everything is
/// waited for, and no graph follows: what nobody waited for before is in the run that ends there.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::exec {

/// One executed step of the walk.
struct TracedStep {
  bool capturable = false;            ///< compute on the device without the host's part, or a message that is queued
  std::int64_t message = -1;          ///< its number; -1: a compute step
  bool begins = false;                ///< the host waits or works before it (a copy to its memory): a graph begins here
  std::vector<std::int64_t> ordered;  ///< compute was ordered behind these messages here
  std::vector<std::int64_t> behind;   ///< a message began behind these
  std::int64_t operators = 0;
};

/// Steps [first, last) of the walk.
struct GraphRun {
  std::size_t first = 0, last = 0;
  bool operator==(const GraphRun&) const = default;
};

/// Runs of at least `least_operators` operators, in order, as long as can be. `steps` are a whole training step's.
[[nodiscard]] std::vector<GraphRun> graph_runs(const std::vector<TracedStep>& steps, std::int64_t least_operators = 2);

}  // namespace orrery::exec
