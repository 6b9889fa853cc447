/// Routes by a search from both ends at once: each end is settled about half way, which on a tree of switches leaves
/// most of the cluster unvisited. Weights are integers, so that equal routes are equal.
#include "clusters/paths.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
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
constexpr double kMostSlowness = 1e15;  ///< 1000 bytes/s; slower links are all equally slow, so that sums stay integers

}  // namespace

struct Paths::Search {
  struct Half {
    std::vector<Distance> distance;
    std::vector<std::uint32_t> labelled, settled;  // stamps
    std::vector<std::pair<Distance, int>> heap;
    std::vector<int> order;  // settled vertices
  };
  Half halves[2];
  std::vector<std::uint32_t> marked;
  std::uint32_t stamp = 0;

  explicit Search(std::size_t vertices) : marked(vertices) {
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
  /// Distance of the nearest unsettled vertex; drops entries that were overtaken.
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
  /// Settles every vertex that may lie on a shortest route, from the nearer end; returns the routes' length.
  Distance run(const std::vector<int>& first, const std::vector<Arc>& arcs) {
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
        const Distance there = d + Distance{arc.latency, arc.slowness};
        label(h, arc.to, there);
        best = std::min(best, there + distance(1 - h, arc.to));
      }
    }
  }
  /// Marks the vertices settled from the start from which a shortest route leads on to one settled from the end.
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
  /// Whether a shortest route goes on from v, which is on one, over this arc.
  [[nodiscard]] bool leads(int v, const Arc& arc, Distance best) const {
    const Distance step{arc.latency, arc.slowness};
    if (settled(1, arc.to)) {
      return settled(1, v) ? distance(1, v) == step + distance(1, arc.to)
                           : distance(0, v) + step + distance(1, arc.to) == best;
    }
    return !settled(1, v) && marked[at(arc.to)] == stamp && distance(0, v) + step == distance(0, arc.to);
  }
};

Paths::Paths(const Cluster& cluster) {
  const Graph& graph = cluster.graph;
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
  for (std::size_t v = 0; v < vertices; ++v) node_of_.push_back(graph[v].node);
  local_of_.assign(vertices, 0);
  std::map<int, int> met;  // devices by node
  for (const std::size_t v : cluster.device_vertices) {
    vertex_of_.push_back(static_cast<int>(v));
    local_of_[v] = met[graph[v].node]++;
  }
  search_ = std::make_unique<Search>(vertices);
}

Paths::~Paths() = default;
Paths::Paths(Paths&&) noexcept = default;
Paths& Paths::operator=(Paths&&) noexcept = default;

int Paths::vertex_of(int device) const {
  ENSURE(device >= 0 && device < devices(), "device {} of {}", device, devices());
  return vertex_of_[Search::at(device)];
}

const Paths::Path& Paths::route(int from, int to) {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  const Path*& path = known_[pair];
  if (!path) path = &kept_.emplace_back(find(from, to));
  return *path;
}

/// What a choice between equal ways goes by.
int Paths::key(int from, int to, int start, int end) const {
  const auto node = [&](int vertex) { return node_of_[Search::at(vertex)]; };
  if (node(from) >= 0 && node(from) == node(start)) return local_of_[Search::at(start)];
  if (node(to) >= 0 && node(to) == node(end)) return local_of_[Search::at(end)];
  return std::max(0, node(start)) + local_of_[Search::at(start)];
}

Paths::Path Paths::find(int start, int end) {
  Path path;
  path.bandwidth.value = std::numeric_limits<double>::infinity();
  if (start == end) return path;
  Search& search = *search_;
  search.begin(start, end);
  const Distance best = search.run(first_, arcs_);
  ENSURE(best < kEndless, "no route from vertex {} to vertex {}", start, end);
  search.mark(first_, arcs_, best);
  std::vector<const Arc*> ways;
  for (int v = start; v != end;) {
    ways.clear();
    for (int i = first_[Search::at(v)]; i < first_[Search::at(v) + 1]; ++i) {
      const Arc& arc = arcs_[Search::at(i)];
      if (search.leads(v, arc, best)) ways.push_back(&arc);
    }
    ENSURE(!ways.empty(), "the route from vertex {} to vertex {} is lost at vertex {}", start, end, v);
    const Arc& way = *ways[Search::at(key(v, ways.front()->to, start, end)) % ways.size()];
    path.links.push_back(way.link);
    path.latency.value += latencies_[Search::at(way.link / 2)];
    path.bandwidth.value = std::min(path.bandwidth.value, bandwidths_[Search::at(way.link)]);
    v = way.to;
  }
  return path;
}

}  // namespace orrery::clusters
