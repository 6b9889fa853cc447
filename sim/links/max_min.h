#pragma once
/// Max-min fair rates of paths over shared resources, updated as the number of flows on each path changes. Progressive
/// filling (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2) with coefficients: the rates of all flows
/// rise together; a flow of rate r takes r * share of each resource that it crosses; when a resource is full its flows
/// stop, and a flow also stops at its path's own limit. Has no clock. Private to sim/.
#include <cstdint>
#include <utility>
#include <vector>

#include "clusters/load.h"

namespace orrery::sim {

/// Keeps 44 of a rate's 52 bits: sums in another order then give bit-identical rates, so that one flow that represents
/// many ends in the same picosecond as they do. A transfer of one second changes by less than a tenth of a picosecond.
[[nodiscard]] double steady_rate(double rate);

class MaxMin {
 public:
  int add_resource(double capacity);
  /// `loads`: sorted by link, one per link, shares above 0. `most`: limit of one flow.
  int add_path(const std::vector<clusters::Load>& loads, double most);
  /// Adds `delta` flows to a path; negative: removes them.
  void change(int path, int delta);
  /// Computes rates after all changes since the last call; returns the paths whose rate has changed.
  const std::vector<int>& solve();

  [[nodiscard]] double rate(int path) const { return paths_[at(path)].rate; }
  [[nodiscard]] double capacity(int resource) const { return resources_[at(resource)].capacity; }
  [[nodiscard]] int resources() const { return static_cast<int>(resources_.size()); }
  [[nodiscard]] bool settled() const { return dirty_resources_.empty() && dirty_paths_.empty(); }
  [[nodiscard]] std::int64_t solved_paths() const { return solved_paths_; }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  struct Crossing {
    int resource = 0;
    double share = 1;
    int place = -1;  // in the resource's list of active paths
  };
  struct Path {
    std::vector<Crossing> crossings;
    double bound = 0;  // no flow on it can be faster
    int count = 0;
    double rate = 0;
    double found = 0;  // by the current solve
    bool stopped = true, dirty = false;
    std::int64_t seen = 0;
  };
  struct Resource {
    double capacity = 0;
    std::vector<std::pair<int, int>> active;  // (path, index of its crossing)
    double potential = 0;                     // its use if every flow reached its bound
    bool binding = false, dirty = false;
    // State of the current solve:
    std::int64_t seen = 0;
    int open = 0;                       // active paths that have not stopped
    double open_share = 0;              // of their flows
    double used = 0;                    // by paths that stopped below `level`
    double level = 0, level_share = 0;  // the last level at which a path stopped, and the share that stopped there
  };

  void list(Path& path, int index);
  void unlist(Path& path);
  void reach_all();
  void reach(int path);
  void open(Resource& resource);
  void fill();
  [[nodiscard]] std::pair<double, int> lowest_resource();
  void stop(int path, double level);

  std::vector<Resource> resources_;
  std::vector<Path> paths_;
  std::vector<int> dirty_resources_, dirty_paths_;
  std::vector<int> reached_resources_, reached_paths_;  // also the work list
  std::vector<std::pair<double, int>> bounds_, levels_;
  std::vector<int> changed_;
  std::int64_t stamp_ = 0, solved_paths_ = 0;
};

}  // namespace orrery::sim
