/// Cuts by max-flow (Boost's push-relabel): of the whole graph if it is small or irregular, of a collapsed one if the
/// cluster is regular, by counting links if it is a torus that divides evenly.
#include <algorithm>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <cmath>
#include <map>
#include <optional>

#include "base/ensure.h"
#include "clusters/build.h"
#include "clusters/routes.h"

namespace orrery::clusters {
namespace {

using Id = Graph::vertex_descriptor;

/// Pipes between numbered places, each with a capacity in bytes/s.
class Flow {
 public:
  explicit Flow(std::size_t places) : places_(places) {}
  std::size_t add() { return places_++; }
  void pipe(std::size_t a, std::size_t b, double capacity) {
    if (capacity <= 0) return;
    pipes_.push_back({a, b, capacity});
    total_ += capacity;
  }
  void both(std::size_t a, std::size_t b, double capacity) {
    pipe(a, b, capacity);
    pipe(b, a, capacity);
  }

  [[nodiscard]] double most(std::size_t from, std::size_t to) const {
    using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
    struct Pipe {
      std::int64_t capacity = 0, residual = 0;
      Traits::edge_descriptor reverse;
    };
    using Net = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Pipe>;
    Net net(places_);
    // Whole bytes per second, or a larger unit if their sum would overflow the flow's integers.
    constexpr double kMostFlow = 1e18;
    const double unit = std::max(1.0, total_ / kMostFlow);
    // The algorithm needs a reverse of zero capacity per pipe: a full-duplex link is two pipes, each with its own.
    for (const Given& p : pipes_) {
      const auto forth = boost::add_edge(p.from, p.to, Pipe{std::llround(p.capacity / unit), 0, {}}, net).first;
      const auto reverse = boost::add_edge(p.to, p.from, Pipe{0, 0, forth}, net).first;
      net[forth].reverse = reverse;
    }
    const std::int64_t flow =
        boost::push_relabel_max_flow(net, from, to, boost::get(&Pipe::capacity, net), boost::get(&Pipe::residual, net),
                                     boost::get(&Pipe::reverse, net), boost::get(boost::vertex_index, net));
    return static_cast<double>(flow) * unit;
  }

 private:
  struct Given {
    std::size_t from, to;
    double capacity;
  };
  std::size_t places_;
  std::vector<Given> pipes_;
  double total_ = 0;
};

bool used(const Link& link) {
  return link.kind != LinkKind::frontend;
}

/// Total bandwidth of a device's links: its source needs no more.
double links_of(const Graph& graph, Id device) {
  double sum = 0;
  const auto edges = boost::out_edges(device, graph);
  for (auto e = edges.first; e != edges.second; ++e) sum += used(graph[*e]) ? graph[*e].bandwidth.value : 0;
  return sum;
}

double of_whole_graph(const Cluster& cluster) {
  const Graph& graph = *cluster.graph;
  Flow flow(boost::num_vertices(graph));
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    if (used(graph[*e])) flow.both(boost::source(*e, graph), boost::target(*e, graph), graph[*e].bandwidth.value);
  }
  const std::size_t from = flow.add(), to = flow.add();
  for (int d = 0; d < cluster.size(); ++d) {
    const Id device = cluster.device_vertices[static_cast<std::size_t>(d)];
    const bool first_half = d < cluster.size() / 2;
    flow.pipe(first_half ? from : device, first_half ? device : to, links_of(graph, device));
  }
  return flow.most(from, to);
}

/// Bandwidth that the devices of node 0 together can bring to its NICs.
double leaving_node(const Cluster& cluster) {
  const Graph& graph = *cluster.graph;
  std::map<Id, std::size_t> place;
  Flow flow(2);  // 0: the devices' source, 1: beyond the NICs
  std::vector<Id> seen;
  const auto place_of = [&](Id v) {
    const auto [at, fresh] = place.try_emplace(v, 0);
    if (fresh) {
      at->second = flow.add();
      seen.push_back(v);
    }
    return at->second;
  };
  for (int d = 0; d < cluster.devices_per_node; ++d) {
    const Id device = cluster.device_vertices[static_cast<std::size_t>(d)];
    flow.pipe(0, place_of(device), links_of(graph, device));
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto edges = boost::out_edges(seen[i], graph);
    for (auto e = edges.first; e != edges.second; ++e) {
      const Id other = boost::target(*e, graph);
      if (!used(graph[*e])) continue;
      const bool outside = graph[other].node != 0;
      const std::size_t here = place.at(seen[i]), there = outside ? 1 : place_of(other);
      flow.pipe(here, there, graph[*e].bandwidth.value);  // the other direction is added from its own end
    }
  }
  return flow.most(0, 1);
}

/// Merges the nodes of one half that have the same leaves into one source (or sink) with the sum of what they can send;
/// a node that the middle divides is kept as it is.
double of_collapsed_graph(const Cluster& cluster) {
  const Graph& graph = *cluster.graph;
  const int middle = cluster.nodes % 2 == 1 ? cluster.nodes / 2 : -1;
  const double each = leaving_node(cluster);
  Flow flow(2);
  std::map<Id, std::size_t> place;
  const auto place_of = [&](Id v) {
    const auto [at, fresh] = place.try_emplace(v, 0);
    if (fresh) at->second = flow.add();
    return at->second;
  };
  struct Hub {
    std::size_t place = 0;
    std::map<std::size_t, double> to;  // bytes/s to each leaf
    int nodes = 0;
  };
  std::map<std::pair<int, bool>, Hub> hubs;  // by leaf group and half
  const auto hub_of = [&](int node) -> Hub& { return hubs[{leaf_group_of(cluster, node), 2 * node < cluster.nodes}]; };
  for (int n = 0; n < cluster.nodes; ++n) {
    if (n != middle) ++hub_of(n).nodes;
  }
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    if (!used(graph[*e])) continue;
    const Id ends[2] = {boost::source(*e, graph), boost::target(*e, graph)};
    const double bandwidth = graph[*e].bandwidth.value;
    const auto kept = [&](Id v) { return graph[v].node < 0 || graph[v].node == middle; };
    if (kept(ends[0]) && kept(ends[1])) {
      flow.both(place_of(ends[0]), place_of(ends[1]), bandwidth);
    } else if (kept(ends[0]) != kept(ends[1])) {
      const int inside = kept(ends[0]) ? 1 : 0;
      hub_of(graph[ends[inside]].node).to[place_of(ends[1 - inside])] += bandwidth;
    }
  }
  for (auto& [key, hub] : hubs) {
    const std::size_t at = flow.add();
    for (const auto& [leaf, bandwidth] : hub.to) {
      if (key.second) flow.pipe(at, leaf, bandwidth);
      if (!key.second) flow.pipe(leaf, at, bandwidth);
    }
    if (key.second) flow.pipe(0, at, each * hub.nodes);
    if (!key.second) flow.pipe(at, 1, each * hub.nodes);
  }
  for (int d = middle * cluster.devices_per_node; middle >= 0 && d < (middle + 1) * cluster.devices_per_node; ++d) {
    const Id device = cluster.device_vertices[static_cast<std::size_t>(d)];
    const bool first_half = d < cluster.size() / 2;
    flow.pipe(first_half ? 0 : place_of(device), first_half ? place_of(device) : 1, links_of(graph, device));
  }
  return flow.most(0, 1);
}

/// The links across the two planes between the halves; nothing if the last dimension's blocks do not halve.
std::optional<double> of_torus(const Cluster& cluster) {
  const Torus torus = torus_of(cluster);
  const int extent = torus.dims.back();
  if (cluster.nodes == 1 || (extent / torus.block.back()) % 2 != 0) return std::nullopt;
  const double planes = extent > 2 ? 2 : 1;
  return planes * cluster.size() / extent * cluster.shape->node.link_bandwidth.value;
}

}  // namespace

BytesPerSecond bisection(const Cluster& cluster) {
  ENSURE(cluster.size() >= 2, "a bisection needs two devices, not {}", cluster.size());
  if (cluster.shape && cluster.shape->node.fabric == NodeFabric::torus) {
    if (const std::optional<double> counted = of_torus(cluster)) return BytesPerSecond{*counted};
    return BytesPerSecond{of_whole_graph(cluster)};
  }
  const bool regular = cluster.shape && cluster.nodes > 1;
  return BytesPerSecond{regular ? of_collapsed_graph(cluster) : of_whole_graph(cluster)};
}

}  // namespace orrery::clusters
