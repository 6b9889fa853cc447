#pragma once
/// Finds a fabric's regular shape from its cables, if it has one: leaves (with or without rails), spines, a core.
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/found.h"
#include "clusters/import/known.h"

namespace orrery::clusters {

/// One port of a host, and where its cable leads.
struct HostPort {
  std::string adapter;  ///< as described in the listing
  int node = 0, port = 0;
  int leaf = 0;          ///< index of the switch
  double bandwidth = 0;  ///< bytes/s
  base::Location where;
};

struct Host {
  std::string name;
  std::vector<HostPort> ports;  ///< by adapter and port, or in the order of the node's NICs once matched
};

/// Hosts in natural order of their names; a port that leads to another host is an error (E0310).
[[nodiscard]] base::Result<std::vector<Host>> hosts_of(const FoundFabric& fabric);

struct RegularFabric {
  NetworkShape network;  ///< without kind and latencies
  double nic_bandwidth = 0;
  std::vector<int> order;  ///< position n holds the host that becomes node n
};

/// The brief form; otherwise `why` says what prevents it. Every host must have the same number of ports, at least one.
[[nodiscard]] std::optional<RegularFabric> regular_fabric(const FoundFabric& fabric, const std::vector<Host>& hosts,
                                                          std::string& why);

/// leaf if a host is attached, spine if next to a leaf, core beyond that; none for switches that no host can reach.
[[nodiscard]] std::vector<std::optional<VertexKind>> tiers_of(const FoundFabric& fabric,
                                                              const std::vector<Host>& hosts);

/// The vertices of each node's NICs.
using NicVertices = std::vector<std::vector<Graph::vertex_descriptor>>;

/// Adds switches and cables as found, each host's ports in the order of its NICs; parallel cables become one link.
void add_cables(Graph& graph, const FoundFabric& fabric, const std::vector<Host>& hosts, const NicVertices& nics,
                const Known& known);
/// Adds one switch for all NICs; node n is nodes[n], or the last of `nodes`.
void add_leaf(Graph& graph, const std::vector<FoundNode>& nodes, const NicVertices& nics, const Known& known);

}  // namespace orrery::clusters
