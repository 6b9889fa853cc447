#pragma once
/// From the cables of a fabric to its regular shape, where it has one: leaves (with or without rails), spines, a core.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"

namespace orrery::clusters {

/// One port of a host, and where its cable leads.
struct HostPort {
  std::string adapter;  ///< as the listing describes it
  int node = 0, port = 0;
  int leaf = 0;          ///< index of the switch
  double bandwidth = 0;  ///< bytes/s
  base::Location where;
};

struct Host {
  std::string name;
  std::vector<HostPort> ports;  ///< by adapter and port, or in the order of the node's NICs once matched
};

/// Hosts by name, as people sort them; ports that lead to another host are an error (E0310).
[[nodiscard]] base::Result<std::vector<Host>> hosts_of(const FoundFabric& fabric);

struct RegularFabric {
  NetworkShape network;  ///< without kind and latencies
  double nic_bandwidth = 0;
  std::vector<int> order;  ///< which host is node n
};

/// The brief form, or in `why` what keeps the fabric from it. Every host has the same number of ports, at least one.
[[nodiscard]] std::optional<RegularFabric> regular_fabric(const FoundFabric& fabric, const std::vector<Host>& hosts,
                                                          std::string& why);

/// leaf where a host is attached, spine next to a leaf, core beyond; for switches that no host reaches: none.
[[nodiscard]] std::vector<std::optional<VertexKind>> tiers_of(const FoundFabric& fabric,
                                                              const std::vector<Host>& hosts);

}  // namespace orrery::clusters
