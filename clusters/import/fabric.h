#pragma once
/// From the cables of a fabric to its regular shape, where it has one: leaves (with or without rails), spines, a core.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/known.h"

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

/// The vertices of each node's NICs.
using NicVertices = std::vector<std::vector<Graph::vertex_descriptor>>;

/// Switches and cables as they are found, each host's ports in the order of its NICs; parallel cables as one link.
void add_cables(Graph& graph, const FoundFabric& fabric, const std::vector<Host>& hosts, const NicVertices& nics,
                const Known& known);
/// One switch for all NICs; node n is nodes[n], or the last.
void add_leaf(Graph& graph, const std::vector<FoundNode>& nodes, const NicVertices& nics, const Known& known);

}  // namespace orrery::clusters
