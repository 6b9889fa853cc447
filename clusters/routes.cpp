/// Routes by Dijkstra and cuts by max-flow on the cluster's graph; groups in closed form where the cluster is regular.
#include "clusters/routes.h"

#include <algorithm>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <boost/property_map/transform_value_property_map.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "base/ensure.h"
#include "clusters/build.h"

namespace orrery::clusters {
namespace {

using Id = Graph::vertex_descriptor;

/// Latency first, then the sum of inverse bandwidths.
struct Distance {
  double latency = 0;
  double inverse_bandwidth = 0;
  auto operator<=>(const Distance&) const = default;
};

struct Hop {
  double latency = 0;
  double bandwidth = 0;
};

/// The vertices of the route by latency, then by bandwidth; a route may pass through a device, as NCCL does over
/// NVLink.
std::vector<Id> shortest(const Graph& graph, Id from, Id to) {
  const auto weight = boost::make_transform_value_property_map(
      [](const Link& link) {
        if (link.kind == LinkKind::frontend) return Distance{std::numeric_limits<double>::infinity(), 0};
        return Distance{link.latency.value, 1 / link.bandwidth.value};
      },
      boost::get(boost::edge_bundle, graph));
  std::vector<Id> previous(boost::num_vertices(graph));
  std::vector<Distance> distance(boost::num_vertices(graph));
  const double endless = std::numeric_limits<double>::infinity();
  boost::dijkstra_shortest_paths(
      graph, from,
      boost::weight_map(weight)
          .predecessor_map(previous.data())
          .distance_map(distance.data())
          .distance_inf(Distance{endless, endless})
          .distance_zero(Distance{})
          .distance_compare(std::less<Distance>())
          .distance_combine([](const Distance& a, const Distance& b) {
            return Distance{a.latency + b.latency, a.inverse_bandwidth + b.inverse_bandwidth};
          }));
  ENSURE(distance[to].latency < endless, "no route from vertex {} to {}", from, to);
  std::vector<Id> path{to};
  while (path.back() != from) path.push_back(previous[path.back()]);
  std::reverse(path.begin(), path.end());
  return path;
}

Id vertex_of(const Cluster& cluster, int device) {
  ENSURE(device >= 0 && device < cluster.size(), "device {} of {}", device, cluster.size());
  return cluster.device_vertices[static_cast<std::size_t>(device)];
}

/// Of parallel links between two neighbours, the one that Dijkstra took.
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

Hop along(const Cluster& cluster, int a, int b) {
  Hop hop{0, std::numeric_limits<double>::max()};
  const std::vector<Id> path = route(cluster, a, b);
  for (std::size_t i = 1; i < path.size(); ++i) {
    const Link& link = best_link(cluster.graph, path[i - 1], path[i]);
    hop.latency += link.latency.value;
    hop.bandwidth = std::min(hop.bandwidth, link.bandwidth.value);
  }
  return hop;
}

/// Within a mesh: the links that a member has to other members, of the one that has fewest; 0 when a member has none.
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

/// The slowest hop of the ring through the members in order, on the graph.
Hop around(const Cluster& cluster, const std::vector<int>& members) {
  Hop worst{0, std::numeric_limits<double>::max()};
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Hop hop = along(cluster, members[i], members[(i + 1) % members.size()]);
    worst.bandwidth = std::min(worst.bandwidth, hop.bandwidth);
    worst.latency = std::max(worst.latency, hop.latency);
  }
  return worst;
}

Hop within_node(const Cluster& cluster, const std::vector<int>& members) {
  const Hop regular{cluster.intra.latency.value, cluster.intra.bandwidth.value};
  if (cluster.shape && cluster.shape->node.fabric != NodeFabric::mesh) return regular;
  if (cluster.shape) {
    const int links = mesh_links_within(cluster, members);
    if (links > 0) return {cluster.intra.latency.value, cluster.shape->node.link_bandwidth.value * links};
  }
  return around(cluster, members);
}

/// Where the ring over the group's nodes crosses leaves and pods.
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

/// Members of this and of similar groups that share one NIC; at least those of the fullest NIC of this group alone.
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
  const Crossings crossing = crossings_of(cluster, nodes);
  if (crossing.leaf > 0) {
    // An uplink's share of one device is its NICs' bandwidth over the oversubscription, and more where only some
    // devices or some hops use uplinks. A rail's leaf serves one device of each node, which is always active.
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

Span span_of(const Cluster& cluster, const std::vector<int>& members, int sharing) {
  Span span;
  if (members.size() < 2) {
    span.bandwidth = cluster.intra.bandwidth;
    return span;
  }
  std::map<int, int> count;
  for (const int member : members) {
    ENSURE(member >= 0 && member < cluster.size(), "member {} of {} devices", member, cluster.size());
    ++count[cluster.node_of(member)];
  }
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
  return shortest(cluster.graph, vertex_of(cluster, a), vertex_of(cluster, b));
}

BytesPerSecond bottleneck(const Cluster& cluster, int a, int b) {
  return BytesPerSecond{along(cluster, a, b).bandwidth};
}

Seconds latency(const Cluster& cluster, int a, int b) {
  return Seconds{along(cluster, a, b).latency};
}

BytesPerSecond bisection(const Cluster& cluster) {
  ENSURE(cluster.size() >= 2, "a bisection needs two devices, not {}", cluster.size());
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  struct Pipe {
    std::int64_t capacity = 0, residual = 0;
    Traits::edge_descriptor reverse;
  };
  using Flow = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Pipe>;
  const std::size_t count = boost::num_vertices(cluster.graph);
  Flow flow(count + 2);
  // Whole bytes per second, unless their sum would not fit the flow's integers.
  constexpr double kMostFlow = 1e18;
  std::vector<double> at_vertex(count, 0);
  const auto edges = boost::edges(cluster.graph);
  double total = 0;
  for (auto e = edges.first; e != edges.second; ++e) {
    const double bandwidth = cluster.graph[*e].bandwidth.value;
    at_vertex[boost::source(*e, cluster.graph)] += bandwidth;
    at_vertex[boost::target(*e, cluster.graph)] += bandwidth;
    total += 2 * bandwidth;
  }
  const double unit = std::max(1.0, total / kMostFlow);
  // The algorithm wants the reverse of each pipe to be empty: a full-duplex link is two pipes with a reverse each.
  const auto pipe = [&](std::size_t a, std::size_t b, double bandwidth) {
    const auto forth = boost::add_edge(a, b, Pipe{std::llround(bandwidth / unit), 0, {}}, flow).first;
    const auto reverse = boost::add_edge(b, a, Pipe{0, 0, forth}, flow).first;
    flow[forth].reverse = reverse;
  };
  for (auto e = edges.first; e != edges.second; ++e) {
    const double bandwidth = cluster.graph[*e].bandwidth.value;
    pipe(boost::source(*e, cluster.graph), boost::target(*e, cluster.graph), bandwidth);
    pipe(boost::target(*e, cluster.graph), boost::source(*e, cluster.graph), bandwidth);
  }
  // A source feeds each device of the first half with as much as its links can take; the second half drains likewise.
  for (int d = 0; d < cluster.size(); ++d) {
    const Id device = vertex_of(cluster, d);
    const bool first_half = d < cluster.size() / 2;
    pipe(first_half ? count : device, first_half ? device : count + 1, at_vertex[device]);
  }
  const std::int64_t most = boost::push_relabel_max_flow(
      flow, count, count + 1, boost::get(&Pipe::capacity, flow), boost::get(&Pipe::residual, flow),
      boost::get(&Pipe::reverse, flow), boost::get(boost::vertex_index, flow));
  return BytesPerSecond{static_cast<double>(most) * unit};
}

}  // namespace orrery::clusters
