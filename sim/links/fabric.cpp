// Routes in three parts: from a device to its NIC (by kind of node), between the switches that two NICs connect to (by
// pair of switches), and from a NIC to a device. If nodes are linked without switches, each requested pair takes a
// search of the whole graph.
#include "sim/links/fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "base/ensure.h"
#include "base/index.h"
#include "clusters/paths.h"
#include "sim/links/symmetry.h"

namespace orrery::sim {

namespace {

using base::at;

using clusters::Cluster;
using clusters::VertexKind;

struct Arc {
  int to = 0, direction = 0;
  double latency = 0, inverse = 0;  // s, s/byte
};

// Latency first, then the sum of inverse bandwidths (clusters/routes.h).
struct Length {
  double latency = std::numeric_limits<double>::infinity(), inverse = 0;
  auto operator<=>(const Length&) const = default;
};

struct Graph {
  std::vector<int> first;  // arcs of vertex v: [first[v], first[v+1])
  std::vector<Arc> arcs;
  std::vector<Direction> directions;
  std::vector<int> node;  // by vertex; -1 in the fabric
  std::vector<VertexKind> kind;
};

int tier_of(VertexKind a, VertexKind b) {
  const auto rank = [](VertexKind k) {
    return k == VertexKind::leaf ? 1 : k == VertexKind::spine ? 2 : k == VertexKind::core ? 3 : 0;
  };
  return std::max(0, std::max(rank(a), rank(b)) - 1);
}

Graph compact(const Cluster& cluster) {
  Graph g;
  const std::size_t vertices = boost::num_vertices(*cluster.graph);
  g.first.assign(vertices + 1, 0);
  g.node.reserve(vertices);
  g.kind.reserve(vertices);
  for (std::size_t v = 0; v < vertices; ++v) {
    g.node.push_back((*cluster.graph)[v].node);
    g.kind.push_back((*cluster.graph)[v].kind);
  }
  const auto edges = boost::edges(*cluster.graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    ++g.first[boost::source(*e, *cluster.graph) + 1];
    ++g.first[boost::target(*e, *cluster.graph) + 1];
  }
  for (std::size_t v = 0; v < vertices; ++v) g.first[v + 1] += g.first[v];
  g.arcs.resize(at(g.first.back()));
  std::vector<int> next(g.first.begin(), g.first.end() - 1);
  for (auto e = edges.first; e != edges.second; ++e) {
    const std::size_t a = boost::source(*e, *cluster.graph), b = boost::target(*e, *cluster.graph);
    const clusters::Link& link = (*cluster.graph)[*e];
    const int number = static_cast<int>(g.directions.size());
    g.directions.resize(g.directions.size() + 2, {link.kind, tier_of(g.kind[a], g.kind[b]), link.bandwidth.value});
    g.arcs[at(next[a]++)] = {static_cast<int>(b), number, link.latency.value, 1 / link.bandwidth.value};
    g.arcs[at(next[b]++)] = {static_cast<int>(a), number + 1, link.latency.value, 1 / link.bandwidth.value};
  }
  return g;
}

// Shortest paths from `source` over vertices that `inside` admits, until `target` is reached (-1: to all vertices). Of
// ways as long the first one that is found, or the last.
struct ShortestWays {
  template <class Inside>
  ShortestWays(const Graph& graph, int source, int target, const Inside& inside, bool last = false) {
    std::priority_queue<std::tuple<Length, int>, std::vector<std::tuple<Length, int>>, std::greater<>> queue;
    reached[source] = {{0, 0}, -1, -1};
    queue.push({{0, 0}, source});
    while (!queue.empty()) {
      const auto [length, v] = queue.top();
      queue.pop();
      if (reached.at(v).length < length) continue;
      if (v == target) return;
      for (int i = graph.first[at(v)]; i < graph.first[at(v) + 1]; ++i) {
        const Arc& arc = graph.arcs[at(i)];
        if (!inside(arc.to)) continue;
        const Length further{length.latency + arc.latency, length.inverse + arc.inverse};
        const auto found = reached.find(arc.to);
        if (found != reached.end() && found->second.length <= further) {
          if (last && found->second.length == further) found->second.from = v, found->second.arc = i;
          continue;
        }
        reached[arc.to] = {further, v, i};
        queue.push({further, arc.to});
      }
    }
  }
  // Positions of the arcs on the path to a vertex, in order.
  [[nodiscard]] std::vector<int> arcs_to(int vertex) const {
    std::vector<int> out;
    for (auto r = reached.find(vertex); r->second.from >= 0; r = reached.find(r->second.from))
      out.push_back(r->second.arc);
    std::reverse(out.begin(), out.end());
    return out;
  }
  struct Reached {
    Length length;
    int from = -1, arc = -1;
  };
  std::map<int, Reached> reached;
};

// A step of a route in a kind of node: the k-th arc of the node's i-th vertex.
struct LocalStep {
  int vertex = 0, arc = 0;
};
using LocalRoute = std::vector<LocalStep>;

struct Port {
  int vertex = 0, arc = 0;  // local vertex (a NIC) and its arc into the fabric
};

// What equal nodes share. Vertices and devices are numbered within the node.
struct NodeKind {
  std::vector<int> devices;  // local vertices
  std::vector<Port> ports;
  std::vector<std::vector<LocalRoute>> between;  // [device][device]
  std::vector<std::vector<LocalRoute>> out, in;  // [device][port]
  std::vector<std::vector<int>> own;             // [device]: ports over which its traffic is spread
};

}  // namespace

struct Fabric::Parts {
  explicit Parts(const Cluster& cluster)
      : graph(compact(cluster)), per_node(cluster.devices_per_node), relays(clusters::relays(cluster)) {
    vertex_of.assign(cluster.device_vertices.begin(), cluster.device_vertices.end());
    if (cluster.shape && cluster.shape->node.fabric == clusters::NodeFabric::torus)
      switched = cluster.nodes > 1 && cluster.shape->network.torus.empty();
    gather_nodes();
    place_devices();
    find_dead_ends();
    find_implied();
    for (std::size_t n = 0; n + 1 < node_first.size() && switched; ++n)
      kind_of.push_back(find_kind(static_cast<int>(n)));
  }

  Graph graph;
  int per_node = 1;
  bool relays = false;          // clusters::relays
  bool switched = true;         // nodes connect only through switches
  std::vector<int> vertex_of;   // by device
  std::vector<int> node_first;  // vertices of node n: node_vertices[node_first[n], node_first[n+1])
  std::vector<int> node_vertices, local;
  std::vector<int> place, node_of;  // by device: its position in its node; its node
  std::vector<NodeKind> kinds;
  std::vector<int> kind_of;
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> kind_by_wiring;
  std::vector<bool> dead_end, implied;
  mutable std::unordered_map<std::uint64_t, std::optional<std::vector<int>>> known;  // between switches, or devices

  void gather_nodes() {
    int nodes = 0;
    for (const int n : graph.node) nodes = std::max(nodes, n + 1);
    node_first.assign(at(nodes) + 1, 0);
    for (const int n : graph.node)
      if (n >= 0) ++node_first[at(n) + 1];
    for (int n = 0; n < nodes; ++n) node_first[at(n) + 1] += node_first[at(n)];
    node_vertices.assign(at(node_first.back()), 0);
    local.assign(graph.node.size(), -1);
    std::vector<int> next(node_first.begin(), node_first.end() - 1);
    for (std::size_t v = 0; v < graph.node.size(); ++v) {
      const int n = graph.node[v];
      if (n < 0) continue;
      local[v] = next[at(n)] - node_first[at(n)];
      node_vertices[at(next[at(n)]++)] = static_cast<int>(v);
    }
  }

  void place_devices() {
    std::vector<int> seen(node_first.size(), 0);
    for (const int v : vertex_of) {
      node_of.push_back(graph.node[at(v)]);
      place.push_back(seen[at(node_of.back())]++);
    }
    for (std::size_t v = 0; v < graph.node.size() && switched; ++v)
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i)
        if (const int other = graph.node[at(graph.arcs[at(i)].to)];
            graph.node[v] >= 0 && other >= 0 && other != graph.node[v])
          switched = false;
  }

  // Whether a way over the devices' own links may pass here.
  [[nodiscard]] bool passes_on(int v) const { return relays && graph.kind[at(v)] == VertexKind::device; }

  // Nodes are of the same kind if they are wired alike, vertex by vertex.
  int find_kind(int n) {
    std::uint64_t high = 1, low = 2;
    const auto note = [&](std::uint64_t value) { high = mix(high, value), low = mix(low, ~value); };
    for (int i = node_first[at(n)]; i < node_first[at(n) + 1]; ++i) {
      const int v = node_vertices[at(i)];
      note(static_cast<std::uint64_t>(graph.kind[at(v)]));
      for (int a = graph.first[at(v)]; a < graph.first[at(v) + 1]; ++a) {
        const Arc& arc = graph.arcs[at(a)];
        note(static_cast<std::uint64_t>(local[at(arc.to)] + 1));
        note(mix(mix(0, arc.latency), arc.inverse));
      }
    }
    const auto [found, fresh] = kind_by_wiring.emplace(std::make_pair(high, low), static_cast<int>(kinds.size()));
    if (fresh) kinds.push_back(make_kind(n));
    return found->second;
  }

  NodeKind make_kind(int n) const {
    NodeKind kind;
    const int begin = node_first[at(n)], end = node_first[at(n) + 1];
    for (int i = begin; i < end; ++i) {
      const int v = node_vertices[at(i)];
      if (graph.kind[at(v)] == VertexKind::device) kind.devices.push_back(i - begin);
      for (int a = graph.first[at(v)]; a < graph.first[at(v) + 1]; ++a)
        if (graph.node[at(graph.arcs[at(a)].to)] < 0) {
          kind.ports.push_back({i - begin, a - graph.first[at(v)]});
          break;
        }
    }
    const auto inside = [&](int v) { return graph.node[at(v)] == n; };
    std::vector<std::vector<Length>> distance;
    const auto vertex = [&](int place_in_node) { return node_vertices[at(begin + place_in_node)]; };
    const auto local_route = [&](const std::vector<int>& arcs, int from) {
      LocalRoute route;
      int v = from;
      for (const int a : arcs) {
        route.push_back({local[at(v)], a - graph.first[at(v)]});
        v = graph.arcs[at(a)].to;
      }
      return route;
    };
    for (const int d : kind.devices) {
      const ShortestWays search(graph, vertex(d), -1, inside);
      const ShortestWays own(graph, vertex(d), -1, [&](int v) { return inside(v) && passes_on(v); });
      std::vector<LocalRoute> to_devices, to_ports;
      distance.emplace_back();
      const auto route_to = [&](int v) {
        const ShortestWays& found = own.reached.contains(v) ? own : search;
        return found.reached.contains(v) ? local_route(found.arcs_to(v), vertex(d)) : LocalRoute{};
      };
      for (const int other : kind.devices) to_devices.push_back(route_to(vertex(other)));
      for (const Port& port : kind.ports) {
        to_ports.push_back(route_to(vertex(port.vertex)));
        const auto found = search.reached.find(vertex(port.vertex));
        distance.back().push_back(found == search.reached.end() ? Length{} : found->second.length);
      }
      kind.between.push_back(std::move(to_devices));
      kind.out.push_back(std::move(to_ports));
    }
    for (const int d : kind.devices) {
      kind.in.emplace_back();
      for (const Port& port : kind.ports) {
        const ShortestWays search(graph, vertex(port.vertex), vertex(d), inside);
        kind.in.back().push_back(search.reached.contains(vertex(d))
                                     ? local_route(search.arcs_to(vertex(d)), vertex(port.vertex))
                                     : LocalRoute{});
      }
    }
    share_out(kind, distance);
    return kind;
  }

  // Devices that share the same nearest ports divide them in order.
  static void share_out(NodeKind& kind, const std::vector<std::vector<Length>>& distance) {
    std::map<std::vector<int>, std::vector<std::size_t>> by_ports;
    kind.own.resize(kind.devices.size());
    for (std::size_t d = 0; d < kind.devices.size(); ++d) {
      Length nearest;
      for (const Length& l : distance[d]) nearest = std::min(nearest, l);
      std::vector<int> ports;
      for (std::size_t p = 0; p < distance[d].size(); ++p)
        if (std::isfinite(distance[d][p].latency) && distance[d][p] == nearest) ports.push_back(static_cast<int>(p));
      by_ports[ports].push_back(d);
    }
    for (const auto& [ports, devices] : by_ports) {
      const std::size_t count = devices.size();
      for (std::size_t k = 0; k < count && !ports.empty(); ++k) {
        const std::size_t from = k * ports.size() / count, to = (k + 1) * ports.size() / count;
        for (std::size_t p = from; p < std::max(to, from + 1); ++p) kind.own[devices[k]].push_back(ports[p]);
      }
    }
  }

  void append(int n, const LocalRoute& route, std::vector<int>& out) const {
    for (const LocalStep& step : route) {
      const int v = node_vertices[at(node_first[at(n)] + step.vertex)];
      out.push_back(graph.arcs[at(graph.first[at(v)] + step.arc)].direction);
    }
  }

  // The arc from a node's port into the fabric.
  [[nodiscard]] const Arc& uplink(int n, const Port& port) const {
    const int v = node_vertices[at(node_first[at(n)] + port.vertex)];
    return graph.arcs[at(graph.first[at(v)] + port.arc)];
  }

  // Directions between two vertices, cached; null if there is no path.
  template <class Inside>
  const std::vector<int>* searched(int from, int to, const Inside& inside, bool last = false) const {
    const std::uint64_t key =
        static_cast<std::uint64_t>(from) << 32 | (last ? 1U << 31 : 0U) | static_cast<unsigned>(to);
    const auto [found, fresh] = known.try_emplace(key);
    if (fresh) {
      ShortestWays search(
          graph, from, to, [&](int v) { return inside(v) && passes_on(v); }, last);
      if (!search.reached.contains(to)) search = ShortestWays(graph, from, to, inside, last);
      if (search.reached.contains(to)) {
        found->second.emplace();
        for (const int a : search.arcs_to(to)) found->second->push_back(graph.arcs[at(a)].direction);
      }
    }
    return found->second ? &*found->second : nullptr;
  }

  // Directions between the switches that two ports connect to.
  [[nodiscard]] const std::vector<int>* between(int from, int to) const {
    static const std::vector<int> kNone;
    if (from == to) return &kNone;
    return searched(from, to, [&](int v) { return v == to || (graph.node[at(v)] < 0 && !dead_end[at(v)]); });
  }

  // The port of its node on which a device sends towards another node's switch: its own; if that has no path (rails
  // without spines), the port that connects to that switch or has a path to it, as NCCL relays over NVLink.
  [[nodiscard]] std::size_t port_towards(int n, const NodeKind& kind, std::size_t own, int target) const {
    if (between(uplink(n, kind.ports[own]).to, target)) return own;
    for (std::size_t p = 0; p < kind.ports.size(); ++p)
      if (between(uplink(n, kind.ports[p]).to, target)) return p;
    ENSURE(false, "no route from node {} to the switch at vertex {}", n, target);
    return own;
  }

  // Proceeds by tiers of switches, so that no two directions imply each other.
  void find_implied() {
    implied.assign(graph.directions.size(), false);
    const auto height = [&](int v) {
      const VertexKind k = graph.kind[at(v)];
      return k == VertexKind::leaf ? 1 : k == VertexKind::spine ? 2 : k == VertexKind::core ? 3 : 0;
    };
    constexpr double kRounding = 1e-9;  // of sums
    for (std::size_t v = 0; v < graph.node.size(); ++v) {
      const int own = height(static_cast<int>(v));
      if (own == 0) continue;
      double below = 0;
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i)
        if (height(graph.arcs[at(i)].to) < own) below += 1 / graph.arcs[at(i)].inverse;
      bool level = false;  // a link to a switch of the same height: traffic may come from there too
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i) level |= height(graph.arcs[at(i)].to) == own;
      int above = 0;
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i) above += height(graph.arcs[at(i)].to) > own ? 1 : 0;
      if (level || above != 1) continue;
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i) {
        const Arc& arc = graph.arcs[at(i)];
        if (height(arc.to) <= own || 1 / arc.inverse < below * (1 - kRounding)) continue;
        implied[at(arc.direction)] = implied[at(arc.direction ^ 1)] = true;
      }
    }
  }

  // A switch below only one other is passed only by traffic that ends there.
  void find_dead_ends() {
    dead_end.assign(graph.node.size(), false);
    for (std::size_t v = 0; v < graph.node.size(); ++v) {
      if (graph.node[v] >= 0) continue;
      int above = -1, others = 0;
      for (int i = graph.first[v]; i < graph.first[v + 1]; ++i) {
        const int to = graph.arcs[at(i)].to;
        if (graph.node[at(to)] >= 0 || to == above) continue;
        above = to;
        ++others;
      }
      dead_end[v] = others <= 1;
    }
  }
};

Fabric::Fabric(const Cluster& cluster) : parts_(std::make_unique<Parts>(cluster)) {}
Fabric::~Fabric() = default;

int Fabric::directions() const {
  return static_cast<int>(parts_->graph.directions.size());
}
const Direction& Fabric::direction(int number) const {
  return parts_->graph.directions[at(number)];
}

bool Fabric::implied(int number) const {
  return parts_->implied[at(number)];
}

int Fabric::ways(int device) const {
  const Parts& p = *parts_;
  if (!p.switched) return 1;
  const NodeKind& kind = p.kinds[at(p.kind_of[at(p.node_of[at(device)])])];
  return std::max(1, static_cast<int>(kind.own[at(p.place[at(device)])].size()));
}

void Fabric::route(int a, int b, int way, std::vector<int>& out) const {
  const Parts& p = *parts_;
  if (a == b) return;
  const int from = p.node_of[at(a)], to = p.node_of[at(b)];
  if (p.switched && from == to) {
    p.append(from, p.kinds[at(p.kind_of[at(from)])].between[at(p.place[at(a)])][at(p.place[at(b)])], out);
    return;
  }
  if (!p.switched) {
    const std::vector<int>* found = p.searched(
        p.vertex_of[at(a)], p.vertex_of[at(b)], [](int) { return true; }, way % 2 == 1);
    ENSURE(found, "no route from device {} to {}", a, b);
    out.insert(out.end(), found->begin(), found->end());
    return;
  }
  const NodeKind& sender = p.kinds[at(p.kind_of[at(from)])];
  const NodeKind& receiver = p.kinds[at(p.kind_of[at(to)])];
  const auto port_of = [way](const NodeKind& kind, int device) {
    const std::vector<int>& own = kind.own[at(device)];
    ENSURE(!own.empty(), "a device without a way out of its node");
    return at(own[at(way) % own.size()]);
  };
  const std::size_t enters = port_of(receiver, p.place[at(b)]);
  const Arc& down = p.uplink(to, receiver.ports[enters]);
  const std::size_t leaves = p.port_towards(from, sender, port_of(sender, p.place[at(a)]), down.to);
  const Arc& up = p.uplink(from, sender.ports[leaves]);
  const std::vector<int>& middle = *p.between(up.to, down.to);
  p.append(from, sender.out[at(p.place[at(a)])][leaves], out);
  out.push_back(up.direction);
  out.insert(out.end(), middle.begin(), middle.end());
  out.push_back(down.direction ^ 1);
  p.append(to, receiver.in[at(p.place[at(b)])][enters], out);
}

}  // namespace orrery::sim
