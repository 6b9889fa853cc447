#pragma once
/// A cluster's network as tiers of equal vertices; the links between two tiers are one, with their load in a step.
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "cost/results.h"
#include "reports/tables/table.h"

namespace orrery::reports {

struct TierLinks {
  clusters::VertexKind from{}, to{};  ///< equal: links within a tier
  std::string name;                   ///< as LinkRow names them: "nvlink", "leaf-spine"
  std::int64_t count = 0;
  double bandwidth = 0;               ///< of one link and direction, bytes/s; the mean if they differ
  std::optional<cost::LinkRow> load;  ///< none: nothing in the step crosses them
};
struct Topology {
  std::vector<std::pair<clusters::VertexKind, std::int64_t>> tiers;  ///< with their number of vertices; devices first
  std::vector<TierLinks> links;
};
/// Leaves out memory, drives and the network of the CPUs' own NICs.
[[nodiscard]] Topology topology_of(const clusters::Cluster& cluster, const std::vector<cost::LinkRow>& loads);
[[nodiscard]] Table topology_table(const Topology& topology);

}  // namespace orrery::reports
