/// Routes by Dijkstra on the cluster's graph; groups in closed form if the cluster is regular.
#include "clusters/routes.h"

#include <algorithm>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/property_map/transform_value_property_map.hpp>
#include <limits>
#include <map>
#include <optional>

#include "base/ensure.h"
#include "clusters/build.h"
#include "clusters/paths.h"
#include "clusters/torus.h"

namespace orrery::clusters {
namespace {

using Id = Graph::vertex_descriptor;

/// Latency first, then the sum of inverse bandwidths.
struct GraphDistance {
  double latency = 0;
  double inverse_bandwidth = 0;
  auto operator<=>(const GraphDistance&) const = default;
};

struct Hop {
  double latency = 0;
  double bandwidth = 0;
};

/// What a route may use: no front-end link, and no devices other than the group's.
struct Allowed {
  const Graph* graph = nullptr;
  const std::vector<int>* through = nullptr;  ///< sorted; none: every device
  bool own = false;                           ///< the devices' own links only
  bool operator()(const Graph::edge_descriptor& e) const { return (*graph)[e].kind != LinkKind::frontend; }
  bool operator()(Id v) const {
    const int device = (*graph)[v].device;
    if (own && device < 0) return false;
    return !through || device < 0 || std::binary_search(through->begin(), through->end(), device);
  }
};

struct Arrived {};

/// Ends the search at its target, Boost's way: by an exception. Neighbours in a torus of thousands of devices are found
/// at once.
struct UntilArrival : boost::dijkstra_visitor<> {
  Id target;
  explicit UntilArrival(Id to) : target(to) {}
  template <class Searched>
  void examine_vertex(Id v, const Searched&) const {
    if (v == target) throw Arrived{};
  }
};

/// Vertices of the route with the least latency, then the most bandwidth; it may pass through a device, as NCCL does
/// over NVLink. Empty when there is none.
std::vector<Id> shortest(const Graph& graph, Id from, Id to, const std::vector<int>* through, bool own = false) {
  const Allowed allowed{&graph, through, own};
  const boost::filtered_graph<Graph, Allowed, Allowed> open(graph, allowed, allowed);
  const auto weight = boost::make_transform_value_property_map(
      [](const Link& link) {
        return GraphDistance{link.latency.value, 1 / link.bandwidth.value};
      },
      boost::get(boost::edge_bundle, graph));
  std::vector<Id> previous(boost::num_vertices(graph));
  const double endless = std::numeric_limits<double>::infinity();
  std::vector<GraphDistance> distance(boost::num_vertices(graph), GraphDistance{endless, endless});
  try {
    boost::dijkstra_shortest_paths(
        open, from,
        boost::weight_map(weight)
            .vertex_index_map(boost::get(boost::vertex_index, graph))
            .predecessor_map(previous.data())
            .distance_map(distance.data())
            .distance_inf(GraphDistance{endless, endless})
            .distance_zero(GraphDistance{})
            .distance_compare(std::less<GraphDistance>())
            .distance_combine([](const GraphDistance& x, const GraphDistance& y) {
              return GraphDistance{x.latency + y.latency, x.inverse_bandwidth + y.inverse_bandwidth};
            })
            .visitor(UntilArrival(to)));
  } catch (const Arrived&) {  // `previous` leads back from the target
  }
  if (!(distance[to].latency < endless)) return {};
  std::vector<Id> path{to};
  while (path.back() != from) path.push_back(previous[path.back()]);
  std::reverse(path.begin(), path.end());
  return path;
}

Id vertex_of(const Cluster& cluster, int device) {
  ENSURE(device >= 0 && device < cluster.size(), "device {} of {}", device, cluster.size());
  return cluster.device_vertices[static_cast<std::size_t>(device)];
}

/// The one of several parallel links between neighbours that Dijkstra took.
const Link& best_link(const Graph& graph, Id a, Id b) {
  const Link* best = nullptr;
  const auto edges = boost::out_edges(a, graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    if (boost::target(*e, graph) != b) continue;
    const Link& link = graph[*e];
    if (!best || link.latency < best->latency || (link.latency == best->latency && link.bandwidth > best->bandwidth)) {
      best = &link;
    }
  }
  ENSURE(best != nullptr, "vertices {} and {} are no neighbours", a, b);
  return *best;
}

Hop along(const Cluster& cluster, const std::vector<Id>& path) {
  Hop hop{0, std::numeric_limits<double>::max()};
  for (std::size_t i = 1; i < path.size(); ++i) {
    const Link& link = best_link(*cluster.graph, path[i - 1], path[i]);
    hop.latency += link.latency.value;
    hop.bandwidth = std::min(hop.bandwidth, link.bandwidth.value);
  }
  return hop;
}

/// In a mesh: the number of links to other members, for the member with the fewest; 0 if a member has none.
int mesh_links_within(const Cluster& cluster, const std::vector<int>& members) {
  int fewest = std::numeric_limits<int>::max();
  const auto local = [&](int device) { return device % cluster.devices_per_node; };
  for (const int member : members) {
    int links = 0;
    for (const MeshEdge& e : cluster.shape->node.edges) {
      for (const int other : members) {
        if (other != member &&
            ((e.a == local(member) && e.b == local(other)) || (e.b == local(member) && e.a == local(other)))) {
          links += e.links;
        }
      }
    }
    fewest = std::min(fewest, links);
  }
  return fewest;
}

/// The slowest hop of the ring through the members in order, on the graph. Other devices forward messages only if there
/// is no other way.
Hop around(const Cluster& cluster, const std::vector<int>& members) {
  Hop worst{0, std::numeric_limits<double>::max()};
  std::vector<int> through = members;
  std::sort(through.begin(), through.end());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int a = members[i], b = members[(i + 1) % members.size()];
    std::vector<Id> path = shortest(*cluster.graph, vertex_of(cluster, a), vertex_of(cluster, b), &through);
    if (path.empty()) path = route(cluster, a, b);
    const Hop hop = along(cluster, path);
    worst.bandwidth = std::min(worst.bandwidth, hop.bandwidth);
    worst.latency = std::max(worst.latency, hop.latency);
  }
  return worst;
}

/// The group along the torus's dimensions. One that has no such form: the links to other members, for the member with
/// the fewest; if one has none, a ring in the members' order, which passes through others.
GroupSpan on_torus(const Cluster& cluster, const std::vector<int>& members, bool shared) {
  const Torus torus = torus_of(cluster);
  const NodeShape& node = cluster.shape->node;
  GroupSpan span;
  span.per_node = static_cast<int>(members.size());
  span.latency = node.latency;
  if (const std::optional<TorusGroup> group = torus_group(torus, members)) {
    span.bandwidth = node.link_bandwidth * group->links(shared);
    span.hops = group->hops();
    span.exchange = node.link_bandwidth * group->exchange_links(shared);
    return span;
  }
  std::vector<int> inside = members;
  std::sort(inside.begin(), inside.end());
  int fewest = std::numeric_limits<int>::max();
  for (const int member : members) {
    int links = 0;
    const auto edges = boost::out_edges(vertex_of(cluster, member), *cluster.graph);
    for (auto e = edges.first; e != edges.second; ++e) {
      const int other = (*cluster.graph)[boost::target(*e, *cluster.graph)].device;
      links += other >= 0 && std::binary_search(inside.begin(), inside.end(), other);
    }
    fewest = std::min(fewest, links);
  }
  span.bandwidth = node.link_bandwidth * std::max(1, fewest);
  if (fewest > 0) return span;
  int farthest = 0;
  for (std::size_t i = 0; i < members.size(); ++i)
    farthest = std::max(farthest, torus_distance(torus, members[i], members[(i + 1) % members.size()]));
  span.latency = node.latency * farthest;
  return span;
}

Hop within_node(const Cluster& cluster, const std::vector<int>& members) {
  if (!cluster.shape) return around(cluster, members);
  switch (cluster.shape->node.fabric) {
    case NodeFabric::none: return around(cluster, members);
    case NodeFabric::mesh: break;
    case NodeFabric::torus:
    case NodeFabric::nvswitch:
    case NodeFabric::shared_memory: return {cluster.intra.latency.value, cluster.intra.bandwidth.value};
  }
  const int links = mesh_links_within(cluster, members);
  if (links == 0) return around(cluster, members);
  return {cluster.shape->node.latency.value, cluster.shape->node.link_bandwidth.value * links};
}

/// How often the ring over the group's nodes crosses leaves and pods.
struct Crossings {
  double leaf = 0;  ///< share of the hops between nodes that leave their leaf group
  double pod = 0;   ///< share that leave their pod
};

Crossings crossings_of(const Cluster& cluster, const std::vector<int>& nodes) {
  Crossings result;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const int a = nodes[i], b = nodes[(i + 1) % nodes.size()];
    if (leaf_group_of(cluster, a) != leaf_group_of(cluster, b)) result.leaf += 1.0 / static_cast<double>(nodes.size());
    if (pod_of(cluster, a) != pod_of(cluster, b)) result.pod += 1.0 / static_cast<double>(nodes.size());
  }
  return result;
}

/// Members of this and of similar groups that share one NIC; at least those of this group alone on its fullest NIC.
double members_per_nic(const Cluster& cluster, const std::vector<int>& members, int per_node, int sharing) {
  const NodeShape& node = cluster.shape->node;
  std::map<std::pair<int, int>, int> on_nic;
  int fullest = 1;
  for (const int member : members) {
    const int local = member % cluster.devices_per_node;
    fullest = std::max(fullest, ++on_nic[{cluster.node_of(member), nic_of(node, local, cluster.devices_per_node)}]);
  }
  const double active = std::min<double>(cluster.devices_per_node, 1.0 * per_node * sharing);
  return std::max<double>(fullest, active / std::min(node.nics, cluster.devices_per_node));
}

Hop between_nodes(const Cluster& cluster, const std::vector<int>& members, const std::vector<int>& nodes, int per_node,
                  int sharing) {
  if (!cluster.shape) {
    const double active = std::min<double>(cluster.devices_per_node, 1.0 * per_node * sharing);
    const double share = cluster.inter.bandwidth.value * cluster.devices_per_node / active;
    const Hop alone = around(cluster, members);
    return {alone.latency, std::min(alone.bandwidth, share)};
  }
  const NodeShape& node = cluster.shape->node;
  const NetworkShape& network = cluster.shape->network;
  const double nics_per_device = std::max(1.0, 1.0 * node.nics / cluster.devices_per_node);
  Hop hop{cluster.inter.latency.value,
          node.nic_bandwidth.value * nics_per_device / members_per_nic(cluster, members, per_node, sharing)};
  hop.latency += network.message_latency.value;
  if ((network.staged || node.nics_at_cpu) && node.pcie_switches > 0) {
    // Messages take the switches' links to the sockets, which the devices of a switch share.
    const double active = std::min<double>(cluster.devices_per_node, 1.0 * per_node * sharing);
    hop.bandwidth = std::min(hop.bandwidth, node.pcie_bandwidth.value / std::max(1.0, active / node.pcie_switches));
  }
  if (network.staged && node.host_memory_bandwidth.value > 0) {
    // Outgoing: the device writes, the protocol's copy reads and writes, the port reads; incoming takes as many passes
    // (Cai et al., SIGCOMM 2021, section 2: the kernel's stack copies once on each side).
    constexpr double kPasses = 8;
    const double active = std::min<double>(cluster.devices_per_node, 1.0 * per_node * sharing);
    hop.bandwidth = std::min(hop.bandwidth, node.host_memory_bandwidth.value * node.sockets / kPasses / active);
  }
  const Crossings crossing = crossings_of(cluster, nodes);
  if (crossing.leaf > 0) {
    // A device's share of an uplink is its NICs' bandwidth over the oversubscription, and more if only some devices or
    // some hops use uplinks. A rail's leaf serves one device of each node, which is always active.
    const double active = network.rails ? 1.0 : std::min(1.0, 1.0 * per_node * sharing / cluster.devices_per_node);
    const double uplink = cluster.inter.bandwidth.value / network.oversubscription / active;
    hop.bandwidth = std::min(hop.bandwidth, uplink / crossing.leaf);
    if (crossing.pod > 0)
      hop.bandwidth = std::min(hop.bandwidth, uplink / network.core_oversubscription / crossing.pod);
    hop.latency += network.hop_latency.value * (crossing.pod > 0 ? 4 : 2);
  }
  return hop;
}

}  // namespace

GroupSpan span_of(const Cluster& cluster, const std::vector<int>& members, int sharing) {
  GroupSpan span;
  if (members.size() < 2) {
    span.bandwidth = cluster.intra.bandwidth;
    return span;
  }
  std::map<int, int> count;
  for (const int member : members) {
    ENSURE(member >= 0 && member < cluster.size(), "member {} of {} devices", member, cluster.size());
    ++count[cluster.node_of(member)];
  }
  if (cluster.shape && cluster.shape->node.fabric == NodeFabric::torus) return on_torus(cluster, members, sharing > 1);
  std::vector<int> nodes;
  for (const auto& [node, inside] : count) {
    nodes.push_back(node);
    span.per_node = std::max(span.per_node, inside);
  }
  span.nodes = static_cast<int>(nodes.size());
  span.within_node = span.nodes == 1;
  const Hop hop = span.within_node ? within_node(cluster, members)
                                   : between_nodes(cluster, members, nodes, span.per_node, std::max(1, sharing));
  span.bandwidth = BytesPerSecond{hop.bandwidth};
  span.latency = Seconds{hop.latency};
  return span;
}

std::vector<Id> route(const Cluster& cluster, int a, int b) {
  if (a == b) return {};
  const Id from = vertex_of(cluster, a), to = vertex_of(cluster, b);
  std::vector<Id> path;
  if (relays(cluster)) path = shortest(*cluster.graph, from, to, nullptr, true);
  if (path.empty()) path = shortest(*cluster.graph, from, to, nullptr);
  ENSURE(!path.empty(), "no route from device {} to {}", a, b);
  return path;
}

BytesPerSecond bottleneck(const Cluster& cluster, int a, int b) {
  return BytesPerSecond{along(cluster, route(cluster, a, b)).bandwidth};
}

Seconds latency(const Cluster& cluster, int a, int b) {
  return Seconds{along(cluster, route(cluster, a, b)).latency};
}

}  // namespace orrery::clusters
