// Shortest paths within a node.
#include "clusters/host_paths.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "base/index.h"

namespace orrery::clusters {

namespace {

using base::at;

}  // namespace

HostPaths::HostPaths(const Cluster& cluster)
    : vertex_of_(cluster.device_vertices.begin(), cluster.device_vertices.end()), per_node_(cluster.devices_per_node) {
  const Graph& graph = *cluster.graph;
  const std::size_t vertices = boost::num_vertices(graph);
  for (std::size_t v = 0; v < vertices; ++v) {
    kinds_.push_back(graph[v].kind);
    nodes_.push_back(graph[v].node);
  }
  std::vector<std::vector<Arc>> arcs(vertices);
  const auto [begin, end] = boost::edges(graph);
  int number = 0;
  for (auto e = begin; e != end; ++e, number += 2) {
    const std::size_t a = boost::source(*e, graph), b = boost::target(*e, graph);
    const Link& link = graph[*e];
    arcs[a].push_back({static_cast<int>(b), number, link.latency.value, link.bandwidth.value});
    arcs[b].push_back({static_cast<int>(a), number + 1, link.latency.value, link.bandwidth.value});
  }
  for (const std::vector<Arc>& own : arcs) {
    first_.push_back(static_cast<int>(arcs_.size()));
    arcs_.insert(arcs_.end(), own.begin(), own.end());
  }
  first_.push_back(static_cast<int>(arcs_.size()));
}

// Least latency, then least sum of inverse bandwidths (clusters/routes.h), over vertices of the same node other than
// devices: a copy does not pass through another device.
HostPath HostPaths::nearest(int from, VertexKind kind) const {
  struct Reached {
    double latency = 0, inverse = 0;
    int arc = -1, before = -1;
    bool done = false;
  };
  std::map<int, Reached> reached;
  using Entry = std::tuple<double, double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  reached[from] = {};
  queue.push({0, 0, from});
  while (!queue.empty()) {
    const auto [latency, inverse, v] = queue.top();
    queue.pop();
    Reached& here = reached[v];
    if (here.done) continue;
    here.done = true;
    if (v != from && kinds_[at(v)] == kind) {
      HostPath path;
      path.bandwidth = BytesPerSecond{std::numeric_limits<double>::infinity()};
      path.latency = Seconds{latency};
      for (int u = v; u != from; u = reached[u].before) {
        path.links.push_back(arcs_[at(reached[u].arc)].link);
        path.bandwidth = std::min(path.bandwidth, BytesPerSecond{arcs_[at(reached[u].arc)].bandwidth});
      }
      std::reverse(path.links.begin(), path.links.end());
      return path;
    }
    for (int a = first_[at(v)]; a < first_[at(v) + 1]; ++a) {
      const Arc& arc = arcs_[at(a)];
      if (nodes_[at(arc.to)] != nodes_[at(from)] || kinds_[at(arc.to)] == VertexKind::device) continue;
      const double further = latency + arc.latency, slower = inverse + 1 / arc.bandwidth;
      const auto found = reached.find(arc.to);
      if (found != reached.end() && std::tie(found->second.latency, found->second.inverse) <= std::tie(further, slower))
        continue;
      reached[arc.to] = {further, slower, a, v, false};
      queue.push({further, slower, arc.to});
    }
  }
  return {};
}

int HostPaths::end_of(int from, const HostPath& path) const {
  int v = from;
  for (const int link : path.links)
    for (int a = first_[at(v)]; a < first_[at(v) + 1]; ++a)
      if (arcs_[at(a)].link == link) {
        v = arcs_[at(a)].to;
        break;
      }
  return v;
}

HostPath HostPaths::to_memory(int device) const {
  return nearest(vertex_of_[at(device)], VertexKind::host_memory);
}

HostPath HostPaths::to_drives(int device) const {
  const int from = vertex_of_[at(device)];
  const HostPath memory = nearest(from, VertexKind::host_memory);
  return memory.links.empty() ? HostPath{} : nearest(end_of(from, memory), VertexKind::nvme);
}

BytesPerSecond HostPaths::shared(bool drives) const {
  std::map<int, int> crossing;
  std::vector<HostPath> paths;
  for (int device = 0; device < std::min<int>(per_node_, static_cast<int>(vertex_of_.size())); ++device) {
    paths.push_back(drives ? to_drives(device) : to_memory(device));
    for (const int link : paths.back().links) ++crossing[link];
  }
  double least = std::numeric_limits<double>::infinity();
  std::map<int, double> bandwidths;
  for (const Arc& arc : arcs_) bandwidths[arc.link] = arc.bandwidth;
  for (const HostPath& path : paths) {
    if (path.links.empty()) return {};
    for (const int link : path.links) least = std::min(least, bandwidths[link] / crossing[link]);
  }
  return BytesPerSecond{paths.empty() ? 0 : least};
}

}  // namespace orrery::clusters
