/// Finds routes by a search from both ends at once: each end is settled about half way, which on a tree of switches
/// leaves most of the cluster unvisited. Integer weights make equal routes compare equal. Between nodes with the same
/// wiring and the same switches, a route is found once.
#include "clusters/paths.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/ensure.h"

namespace orrery::clusters {

namespace {

struct Distance {
  std::int64_t latency = 0, slowness = 0;
  auto operator<=>(const Distance&) const = default;
  friend Distance operator+(Distance a, Distance b) { return {a.latency + b.latency, a.slowness + b.slowness}; }
};
constexpr Distance kEndless{std::numeric_limits<std::int64_t>::max() / 4, 0};

constexpr double kFemto = 1e15;
constexpr double kSlownessUnit = 1e18;
constexpr double kMostSlowness = 1e15;  ///< 1000 bytes/s; slower links count as equally slow, so that sums fit integers

}  // namespace

bool relays(const Cluster& cluster) {
  using enum NodeFabric;
  return cluster.shape && (cluster.shape->node.fabric == torus || cluster.shape->node.fabric == mesh);
}

struct Paths::RouteSearch {
  struct Half {
    std::vector<Distance> distance;
    std::vector<std::uint32_t> labelled, settled;  // stamps
    std::vector<std::pair<Distance, int>> heap;
    std::vector<int> order;  // settled vertices
  };
  Half halves[2];
  std::vector<std::uint32_t> marked;
  std::uint32_t stamp = 0;

  explicit RouteSearch(std::size_t vertices) : marked(vertices) {
    for (Half& half : halves) {
      half.distance.resize(vertices);
      half.labelled.resize(vertices);
      half.settled.resize(vertices);
    }
  }
  static std::size_t at(int v) { return static_cast<std::size_t>(v); }
  [[nodiscard]] bool settled(int half, int v) const { return halves[half].settled[at(v)] == stamp; }
  [[nodiscard]] Distance distance(int half, int v) const {
    return halves[half].labelled[at(v)] == stamp ? halves[half].distance[at(v)] : kEndless;
  }
  void label(int h, int v, Distance d) {
    Half& half = halves[h];
    if (half.labelled[at(v)] == stamp && half.distance[at(v)] <= d) return;
    half.labelled[at(v)] = stamp;
    half.distance[at(v)] = d;
    half.heap.emplace_back(d, v);
    std::push_heap(half.heap.begin(), half.heap.end(), std::greater<>());
  }
  /// Distance of the nearest unsettled vertex; drops outdated entries.
  [[nodiscard]] Distance top(int h) {
    Half& half = halves[h];
    while (!half.heap.empty() && settled(h, half.heap.front().second)) pop(h);
    return half.heap.empty() ? kEndless : half.heap.front().first;
  }
  int pop(int h) {
    Half& half = halves[h];
    const int v = half.heap.front().second;
    std::pop_heap(half.heap.begin(), half.heap.end(), std::greater<>());
    half.heap.pop_back();
    return v;
  }
  void begin(int a, int b) {
    ++stamp;
    for (Half& half : halves) {
      half.heap.clear();
      half.order.clear();
    }
    label(0, a, {});
    label(1, b, {});
  }
  /// Settles every vertex that may lie on a shortest route, nearer end first; returns the routes' length. `over`: by
  /// vertex, where a route may pass; null: everywhere.
  Distance run(const std::vector<int>& first, const std::vector<Arc>& arcs, const std::vector<bool>* over) {
    Distance best = kEndless;
    while (true) {
      const Distance forth = top(0), back = top(1);
      if (forth == kEndless || back == kEndless || best < forth + back) return best;
      const int h = back < forth ? 1 : 0;
      const int v = pop(h);
      halves[h].settled[at(v)] = stamp;
      halves[h].order.push_back(v);
      const Distance d = halves[h].distance[at(v)];
      for (int i = first[at(v)]; i < first[at(v) + 1]; ++i) {
        const Arc& arc = arcs[at(i)];
        if (over && !(*over)[at(arc.to)]) continue;
        const Distance there = d + Distance{arc.latency, arc.slowness};
        label(h, arc.to, there);
        best = std::min(best, there + distance(1 - h, arc.to));
      }
    }
  }
  /// Marks the vertices settled from the start that have a shortest route on to a vertex settled from the end.
  void mark(const std::vector<int>& first, const std::vector<Arc>& arcs, Distance best) {
    std::vector<int> work;
    const auto add = [&](int v) {
      if (marked[at(v)] == stamp) return;
      marked[at(v)] = stamp;
      work.push_back(v);
    };
    for (const int v : halves[0].order) {
      for (int i = first[at(v)]; i < first[at(v) + 1]; ++i) {
        const Arc& arc = arcs[at(i)];
        if (!settled(1, arc.to)) continue;
        if (distance(0, v) + Distance{arc.latency, arc.slowness} + distance(1, arc.to) == best) add(v);
      }
    }
    while (!work.empty()) {
      const int v = work.back();
      work.pop_back();
      for (int i = first[at(v)]; i < first[at(v) + 1]; ++i) {
        const Arc& arc = arcs[at(i)];
        if (settled(0, arc.to) && distance(0, arc.to) + Distance{arc.latency, arc.slowness} == distance(0, v)) {
          add(arc.to);
        }
      }
    }
  }
  /// Whether a shortest route through v continues over this arc.
  [[nodiscard]] bool leads(int v, const Arc& arc, Distance best) const {
    const Distance step{arc.latency, arc.slowness};
    if (settled(1, arc.to)) {
      return settled(1, v) ? distance(1, v) == step + distance(1, arc.to)
                           : distance(0, v) + step + distance(1, arc.to) == best;
    }
    return !settled(1, v) && marked[at(arc.to)] == stamp && distance(0, v) + step == distance(0, arc.to);
  }
};

struct Paths::Hop {
  enum class Where { start, between, end, into_end } where = Where::start;
  int vertex = 0, arc = 0;  ///< in a node; `between`: arc is the link
};

struct Paths::Pattern {
  std::vector<Hop> steps;
  Seconds latency;
  BytesPerSecond bandwidth;
};

/// Nodes that are interchangeable: each vertex has the same arcs in the same order, to the same places in the node or
/// to the same switches. A route between two such nodes is a pattern that holds for all such pairs, unless it passes a
/// third node, or a switch that chooses between equal ways up.
struct Paths::Alike {
  explicit Alike(const Paths& paths) {
    int nodes = 0;
    for (const int n : paths.node_of_) nodes = std::max(nodes, n + 1);
    vertices.resize(RouteSearch::at(nodes));
    for (std::size_t v = 0; v < paths.node_of_.size(); ++v) {
      place.push_back(0);
      if (const int n = paths.node_of_[v]; n >= 0) {
        place.back() = static_cast<int>(vertices[RouteSearch::at(n)].size());
        vertices[RouteSearch::at(n)].push_back(static_cast<int>(v));
      }
    }
    std::map<std::pair<std::uint64_t, std::uint64_t>, int> known;
    for (int n = 0; n < nodes; ++n) {
      const auto wiring = wiring_of(paths, n);
      kind.push_back(wiring ? known.try_emplace(*wiring, static_cast<int>(known.size())).first->second : -1);
      most = std::max(most, vertices[RouteSearch::at(n)].size());
    }
    kinds = known.size();
  }

  /// 128-bit hash of all that interchangeable nodes share; none if nodes are joined without switches.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> wiring_of(const Paths& paths, int n) const {
    std::uint64_t a = 1, b = 2;
    const auto note = [&](std::uint64_t value) {
      a = (a ^ value) * 0x9e3779b97f4a7c15ULL;  // Fibonacci hashing
      a ^= a >> 29;
      b = (b + value) * 0xbf58476d1ce4e5b9ULL;  // splitmix64
      b ^= b >> 31;
    };
    for (const int v : vertices[RouteSearch::at(n)]) {
      note(static_cast<std::uint64_t>(paths.local_of_[RouteSearch::at(v)]));
      for (int i = paths.first_[RouteSearch::at(v)]; i < paths.first_[RouteSearch::at(v) + 1]; ++i) {
        const Arc& arc = paths.arcs_[RouteSearch::at(i)];
        const int other = paths.node_of_[RouteSearch::at(arc.to)];
        if (other >= 0 && other != n) return std::nullopt;
        note(other < 0 ? 2 * static_cast<std::uint64_t>(arc.to)
                       : 2 * static_cast<std::uint64_t>(place[RouteSearch::at(arc.to)]) + 1);
        note(static_cast<std::uint64_t>(arc.latency));
        note(std::bit_cast<std::uint64_t>(paths.bandwidths_[RouteSearch::at(arc.link)]));
      }
      note(~std::uint64_t{0});  // the end of a vertex
    }
    return std::make_pair(a, b);
  }

  /// The key of the pattern between two vertices; none if no pattern applies.
  [[nodiscard]] std::optional<std::uint64_t> key(const Paths& paths, int start, int end) const {
    const int from = paths.node_of_[RouteSearch::at(start)], to = paths.node_of_[RouteSearch::at(end)];
    if (from < 0 || to < 0 || kind[RouteSearch::at(from)] < 0 || kind[RouteSearch::at(to)] < 0) return std::nullopt;
    const std::size_t other = from == to ? kinds : RouteSearch::at(kind[RouteSearch::at(to)]);
    const std::size_t pair = RouteSearch::at(kind[RouteSearch::at(from)]) * (kinds + 1) + other;
    return (pair * most + RouteSearch::at(place[RouteSearch::at(start)])) * most +
           RouteSearch::at(place[RouteSearch::at(end)]);
  }

  [[nodiscard]] Path follow(const Paths& paths, const Pattern& pattern, int start, int end) const {
    const std::vector<int>& from = vertices[RouteSearch::at(paths.node_of_[RouteSearch::at(start)])];
    const std::vector<int>& to = vertices[RouteSearch::at(paths.node_of_[RouteSearch::at(end)])];
    Path path{{}, pattern.latency, pattern.bandwidth};
    path.links.reserve(pattern.steps.size());
    for (const Hop& step : pattern.steps) {
      const auto link = [&](const std::vector<int>& node) {
        return paths
            .arcs_[RouteSearch::at(paths.first_[RouteSearch::at(node[RouteSearch::at(step.vertex)])] + step.arc)]
            .link;
      };
      switch (step.where) {
        case Hop::Where::start: path.links.push_back(link(from)); break;
        case Hop::Where::between: path.links.push_back(step.arc); break;
        case Hop::Where::end: path.links.push_back(link(to)); break;
        case Hop::Where::into_end: path.links.push_back(link(to) ^ 1); break;
      }
    }
    return path;
  }

  std::vector<std::vector<int>> vertices;                              ///< by node
  std::vector<int> place;                                              ///< of a vertex in its node
  std::vector<int> kind;                                               ///< of a node; -1: not interchangeable
  std::size_t kinds = 0, most = 0;                                     ///< kinds; vertices of the largest node
  std::unordered_map<std::uint64_t, std::optional<Pattern>> patterns;  ///< none: each pair needs its own search
};

Paths::Paths(const Cluster& cluster) {
  const Graph& graph = *cluster.graph;
  const std::size_t vertices = boost::num_vertices(graph);
  first_.assign(vertices + 1, 0);
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    if (graph[*e].kind == LinkKind::frontend) continue;  // messages never take it
    ++first_[boost::source(*e, graph) + 1];
    ++first_[boost::target(*e, graph) + 1];
  }
  for (std::size_t v = 0; v < vertices; ++v) first_[v + 1] += first_[v];
  arcs_.resize(static_cast<std::size_t>(first_.back()));
  std::vector<int> next(first_.begin(), first_.end() - 1);
  int link = 0;
  for (auto e = edges.first; e != edges.second; ++e) {
    const Link& cable = graph[*e];
    const std::int64_t latency = std::llround(cable.latency.value * kFemto);
    const std::int64_t slowness = std::llround(std::min(kSlownessUnit / cable.bandwidth.value, kMostSlowness));
    const std::size_t ends[2] = {boost::source(*e, graph), boost::target(*e, graph)};
    for (int direction = 0; direction < 2; ++direction) {
      const auto from = ends[direction], to = ends[1 - direction];
      if (cable.kind != LinkKind::frontend)
        arcs_[static_cast<std::size_t>(next[from]++)] = {static_cast<int>(to), link, latency, slowness};
      bandwidths_.push_back(cable.bandwidth.value);
      ++link;
    }
    latencies_.push_back(cable.latency.value);
  }
  for (std::size_t v = 0; v < vertices; ++v) {
    const VertexKind kind = graph[v].kind;
    node_of_.push_back(graph[v].node);
    tier_of_.push_back(kind == VertexKind::core ? 3 : kind == VertexKind::spine ? 2 : kind == VertexKind::leaf ? 1 : 0);
  }
  local_of_.assign(vertices, 0);
  relay_.assign(vertices, false);
  std::map<int, int> met;  // devices by node
  for (const std::size_t v : cluster.device_vertices) {
    vertex_of_.push_back(static_cast<int>(v));
    local_of_[v] = met[graph[v].node]++;
    relay_[v] = relays(cluster);
  }
  search_ = std::make_unique<RouteSearch>(vertices);
  if (cluster.shape) message_latency_ = cluster.shape->network.message_latency;
}

Paths::~Paths() = default;
Paths::Paths(Paths&&) noexcept = default;
Paths& Paths::operator=(Paths&&) noexcept = default;

int Paths::vertex_of(int device) const {
  ENSURE(device >= 0 && device < devices(), "device {} of {}", device, devices());
  return vertex_of_[RouteSearch::at(device)];
}

const Paths::Path& Paths::route(int from, int to) {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  const Path*& path = known_[pair];
  if (!path) path = &kept_.emplace_back(find(from, to));
  return *path;
}

/// Whether a step leads from a switch down to a lower tier, where the receiver decides between rails.
bool Paths::down(int from, int to) const {
  return tier_of_[RouteSearch::at(to)] > 0 && tier_of_[RouteSearch::at(to)] < tier_of_[RouteSearch::at(from)];
}

/// What selects one of several equal ways.
int Paths::key(int from, int to, int start, int end) const {
  const auto node = [&](int vertex) { return node_of_[RouteSearch::at(vertex)]; };
  if (node(from) >= 0 && node(from) == node(start)) return local_of_[RouteSearch::at(start)];
  if (down(from, to) || (node(to) >= 0 && node(to) == node(end))) return local_of_[RouteSearch::at(end)];
  return std::max(0, node(start)) + local_of_[RouteSearch::at(start)];
}

Paths::Path Paths::find(int start, int end) {
  if (start == end) return {{}, Seconds{0}, BytesPerSecond{std::numeric_limits<double>::infinity()}};
  if (!alike_) alike_ = std::make_unique<Alike>(*this);
  const auto kept = alike_->key(*this, start, end);
  if (!kept) return search(start, end, nullptr);
  const auto [found, fresh] = alike_->patterns.try_emplace(*kept);
  if (!fresh && found->second) return alike_->follow(*this, *found->second, start, end);
  return search(start, end, fresh ? &found->second : nullptr);
}

/// Stores the route in `pattern` if it holds for all interchangeable nodes.
Paths::Path Paths::search(int start, int end, std::optional<Pattern>* pattern) {
  Path path;
  path.bandwidth.value = std::numeric_limits<double>::infinity();
  RouteSearch& search = *search_;
  search.begin(start, end);
  const bool relayed = relay_[RouteSearch::at(start)] && relay_[RouteSearch::at(end)];
  Distance best = relayed ? search.run(first_, arcs_, &relay_) : kEndless;
  if (best == kEndless) {
    search.begin(start, end);
    best = search.run(first_, arcs_, nullptr);
  }
  ENSURE(best < kEndless, "no route from vertex {} to vertex {}", start, end);
  search.mark(first_, arcs_, best);
  std::vector<const Arc*> ways;
  const int own = node_of_[RouteSearch::at(start)], other = node_of_[RouteSearch::at(end)];
  bool regular = pattern != nullptr;
  std::vector<Hop> steps;
  for (int v = start; v != end;) {
    ways.clear();
    for (int i = first_[RouteSearch::at(v)]; i < first_[RouteSearch::at(v) + 1]; ++i) {
      const Arc& arc = arcs_[RouteSearch::at(i)];
      if (search.leads(v, arc, best)) ways.push_back(&arc);
    }
    ENSURE(!ways.empty(), "the route from vertex {} to vertex {} is lost at vertex {}", start, end, v);
    const Arc& way = *ways[RouteSearch::at(key(v, ways.front()->to, start, end)) % ways.size()];
    path.links.push_back(way.link);
    path.latency.value += latencies_[RouteSearch::at(way.link / 2)];
    path.bandwidth.value = std::min(path.bandwidth.value, bandwidths_[RouteSearch::at(way.link)]);
    if (regular) regular = add_step(v, way, ways.size(), own, other, steps);
    v = way.to;
  }
  if (own >= 0 && other >= 0 && own != other) path.latency += message_latency_;
  if (regular) *pattern = Pattern{std::move(steps), path.latency, path.bandwidth};
  return path;
}

/// Adds the step from v to the pattern; false if it does not hold for all interchangeable nodes.
bool Paths::add_step(int v, const Arc& way, std::size_t ways, int own, int other, std::vector<Hop>& steps) const {
  using Where = Hop::Where;
  const auto node = [&](int vertex) { return node_of_[RouteSearch::at(vertex)]; };
  const auto position = [&](int vertex, int link) {
    int i = first_[RouteSearch::at(vertex)];
    while (arcs_[RouteSearch::at(i)].link != link) ++i;
    return i - first_[RouteSearch::at(vertex)];
  };
  const auto place = [&](int vertex) { return alike_->place[RouteSearch::at(vertex)]; };
  const int here = node(v), there = node(way.to);
  if (here == own) {
    if (there >= 0 ? there != own : own == other) return false;
    steps.push_back({Where::start, place(v), position(v, way.link)});
    return true;
  }
  if (here == other) {
    if (there != other) return false;
    steps.push_back({Where::end, place(v), position(v, way.link)});
    return true;
  }
  if (here >= 0 || (ways > 1 && !down(v, way.to)) || (there >= 0 && there != other)) return false;
  if (there < 0) {
    steps.push_back({Where::between, 0, way.link});
  } else {
    steps.push_back({Where::into_end, place(way.to), position(way.to, way.link ^ 1)});
  }
  return true;
}

}  // namespace orrery::clusters
