/// A cluster in a few numbers: what connects devices within and between nodes, and what a node can store.
#include <algorithm>
#include <limits>

#include "clusters/build.h"
#include "clusters/routes.h"

namespace orrery::clusters {
namespace {

/// NVLinks of the device that has the fewest; each edge counts with its number of links.
int fewest_mesh_links(const NodeShape& node, int devices) {
  std::vector<int> links(static_cast<std::size_t>(devices), 0);
  for (const MeshEdge& e : node.edges) {
    links[static_cast<std::size_t>(e.a)] += e.links;
    links[static_cast<std::size_t>(e.b)] += e.links;
  }
  return *std::min_element(links.begin(), links.end());
}

/// Whether the edges connect all devices.
bool joined(const NodeShape& node, int devices) {
  std::vector<bool> reached(static_cast<std::size_t>(devices), false);
  reached[0] = true;
  for (int round = 0; round < devices; ++round) {
    bool grew = false;
    for (const MeshEdge& e : node.edges) {
      const auto a = static_cast<std::size_t>(e.a), b = static_cast<std::size_t>(e.b);
      grew = grew || reached[a] != reached[b];
      reached[a] = reached[b] = reached[a] || reached[b];
    }
    if (!grew) break;
  }
  return std::all_of(reached.begin(), reached.end(), [](bool one) { return one; });
}

/// Links per device of the torus, and those that leave the node; means over the node's devices.
struct TorusLinks {
  double all = 0, leaving = 0;
};
TorusLinks torus_links(const Torus& torus) {
  TorusLinks links;
  for (std::size_t d = 0; d < torus.dims.size(); ++d) {
    const int extent = torus.dims[d], block = torus.block[d];
    const double each = extent > 2 ? 2 : extent == 2 ? 1 : 0;
    links.all += each;
    if (block < extent) links.leaving += each / block * (block == 1 || extent > 2 ? 1.0 : 0.5);
  }
  return links;
}

LinkClass over_pcie(const NodeShape& node) {
  BytesPerSecond bandwidth = node.pcie_bandwidth;
  Seconds latency = node.pcie_latency * (node.pcie_switches > 0 ? 4 : 2);
  if (node.sockets > 1) {
    bandwidth = std::min(bandwidth, node.socket_bandwidth);
    latency += node.socket_latency;
  }
  return {"pcie", bandwidth, latency};
}

LinkClass intra_of(const Cluster& cluster) {
  const NodeShape& node = cluster.shape->node;
  const std::string& given = node.link_name;
  const auto named = [&](const char* by_kind) { return given.empty() ? std::string(by_kind) : given; };
  switch (node.fabric) {
    case NodeFabric::shared_memory: return {named("shared-memory"), node.link_bandwidth, node.latency};
    case NodeFabric::nvswitch: return {named("nvlink"), node.link_bandwidth * node.links, node.latency};
    case NodeFabric::none: return over_pcie(node);
    case NodeFabric::torus:
      return {named("torus"), node.link_bandwidth * torus_links(torus_of(cluster)).all, node.latency};
    case NodeFabric::mesh: break;
  }
  const int devices = cluster.devices_per_node;
  if (devices > 1 && !joined(node, devices)) return over_pcie(node);
  return {named("nvlink"), node.link_bandwidth * fewest_mesh_links(node, devices), node.latency};
}

LinkClass inter_of(const Cluster& cluster) {
  const NodeShape& node = cluster.shape->node;
  const NetworkShape& network = cluster.shape->network;
  if (node.fabric == NodeFabric::torus) {
    return {cluster.intra.name, node.link_bandwidth * torus_links(torus_of(cluster)).leaving, node.latency};
  }
  // Device, PCIe switch, NIC, leaf and down again. A NIC at a socket is reached over the switch's link to it; staged
  // messages pass through host memory as well.
  const bool shared = node.fabric == NodeFabric::shared_memory;
  const bool at_socket = network.staged || node.nics_at_cpu;
  double links = node.pcie_switches > 0 ? (at_socket ? 3 : 2) : shared ? 1 : 2;
  const double device_side = shared ? node.latency.value / 2 : 0;
  const double memory = network.staged ? node.host_memory_latency.value : 0;
  return {network.kind, node.nic_bandwidth * (1.0 * node.nics / cluster.devices_per_node),
          Seconds{2 * (device_side + links * node.pcie_latency.value + memory + node.nic_latency.value)}};
}

/// What a node's devices are joined by: NVLink if any of them has one, else PCIe.
const char* kind_within(const Cluster& cluster) {
  if (cluster.device().kind == DeviceKind::cpu) return "shared-memory";
  const Graph& graph = *cluster.graph;
  const auto edges = boost::edges(graph);
  const bool linked =
      std::any_of(edges.first, edges.second, [&](const auto& edge) { return graph[edge].kind == LinkKind::nvlink; });
  return linked || cluster.devices_per_node == 1 ? "nvlink" : "pcie";
}

}  // namespace

void describe(Cluster& cluster) {
  const NodeShape& node = cluster.shape->node;
  cluster.intra = intra_of(cluster);
  cluster.nics_per_node = node.nics;
  cluster.oversubscription = cluster.shape->network.oversubscription;
  cluster.inter = cluster.nodes > 1 ? inter_of(cluster) : LinkClass{};
  const BytesPerSecond memory = node.host_memory_bandwidth * node.sockets;
  cluster.host_memory = {node.host_memory, memory, memory, node.host_memory_latency};
  cluster.nvme = {node.nvme_capacity * node.nvme, node.nvme_read * node.nvme, node.nvme_write * node.nvme,
                  node.nvme_latency};
}

void summarize(Cluster& cluster) {
  const int per_node = cluster.devices_per_node;
  const double endless = std::numeric_limits<double>::max();
  cluster.intra = {kind_within(cluster), BytesPerSecond{endless}, Seconds{0}};
  for (int d = 0; d < per_node && per_node > 1; ++d) {
    const int next = (d + 1) % per_node;
    cluster.intra.bandwidth = std::min(cluster.intra.bandwidth, bottleneck(cluster, d, next));
    cluster.intra.latency = std::max(cluster.intra.latency, latency(cluster, d, next));
  }
  if (per_node == 1) cluster.intra.bandwidth = cluster.device().memory_bandwidth;
  cluster.inter = {};
  const Graph& graph = *cluster.graph;
  double leaving = 0;
  const auto add = [](Storage& storage, const Vertex& place, const Link& link) {
    storage.capacity += place.capacity;
    storage.read = storage.write += link.bandwidth;
    storage.latency = std::max(storage.latency, link.latency);
  };
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const Vertex &from = graph[boost::source(*e, graph)], &to = graph[boost::target(*e, graph)];
    for (const Vertex* place : {&from, &to}) {
      if (place->node == 0 && place->kind == VertexKind::host_memory) add(cluster.host_memory, *place, graph[*e]);
      if (place->node == 0 && place->kind == VertexKind::nvme) add(cluster.nvme, *place, graph[*e]);
    }
    if (graph[*e].kind != LinkKind::frontend && (from.node == 0) != (to.node == 0))
      leaving += graph[*e].bandwidth.value;
  }
  if (cluster.nodes == 1) return;
  cluster.inter = {"network", BytesPerSecond{leaving / per_node}, latency(cluster, 0, per_node)};
}

}  // namespace orrery::clusters
