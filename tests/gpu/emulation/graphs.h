#pragma once
/// Captured work: what a graph is, how it runs, and whether a capture may end as it is.
#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace emulation {

/// What a capture keeps: lanes, one for each stream that joined it, of work and of waits for places in other lanes.
struct Graph {
  struct Node {
    std::function<Work()> make;          // null: a wait
    std::size_t lane = 0, position = 0;  // which waits until so much of that lane is done
  };
  std::vector<std::vector<Node>> lanes;
  std::vector<std::shared_ptr<void>> users;  // kept as long as the graph is, and what is made of it
};

struct GraphExec {
  Graph graph;
};

/// A capture under way. The first lane is the stream on which it was begun.
struct Capture {
  Graph graph;
  std::vector<Stream*> streams;
  cudaError_t broken = cudaSuccess;
};

/// A graph as it runs: it holds the stream that launched it until all its lanes are done.
class RunningGraph {
 public:
  explicit RunningGraph(const Graph& graph)
      : graph_{graph.lanes, {}}, at_(graph.lanes.size(), 0), made_(graph.lanes.size()) {
    for (std::size_t lane = 0; lane < graph.lanes.size(); ++lane)
      for (const Graph::Node& node : graph.lanes[lane]) made_[lane].push_back(node.make ? node.make() : Work());
  }
  /// The first lane as far as it goes, the others only when it is stuck: a missing wait yields stale data. Or the other
  /// way round, or by chance.
  bool step() {
    const std::size_t from = stream_order() == 1 ? 1 : first_of(at_.size());
    for (std::size_t i = 0; i < at_.size(); ++i)
      if (one((from + i) % at_.size())) return false;
    for (std::size_t lane = 0; lane < at_.size(); ++lane)
      if (at_[lane] < graph_.lanes[lane].size()) return false;
    return true;
  }

 private:
  bool one(std::size_t lane) {
    if (at_[lane] == graph_.lanes[lane].size()) return false;
    const Graph::Node& node = graph_.lanes[lane][at_[lane]];
    const bool done = node.make ? made_[lane][at_[lane]]() : at_[node.lane] >= node.position;
    if (done) ++at_[lane];
    return done;
  }
  Graph graph_;
  std::vector<std::size_t> at_;
  std::vector<std::vector<Work>> made_;
};

/// Whether everything in the other lanes comes before the end of the first.
inline bool joined(const Graph& graph) {
  std::vector<std::size_t> before(graph.lanes.size(), 0);  // so much of each lane
  before[0] = graph.lanes[0].size();
  for (bool more = true; more;) {
    more = false;
    for (std::size_t lane = 0; lane < graph.lanes.size(); ++lane)
      for (std::size_t i = 0; i < before[lane]; ++i) {
        const Graph::Node& node = graph.lanes[lane][i];
        if (node.make || before[node.lane] >= node.position) continue;
        before[node.lane] = node.position;
        more = true;
      }
  }
  for (std::size_t lane = 0; lane < graph.lanes.size(); ++lane) {
    const auto& nodes = graph.lanes[lane];
    // Waits at a lane's end are no work that anybody must wait for.
    std::size_t last = nodes.size();
    while (last > before[lane] && !nodes[last - 1].make) --last;
    if (last > before[lane]) return false;
  }
  return true;
}

}  // namespace emulation
