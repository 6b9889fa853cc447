/// Builds the graph of a regular cluster: node by node, then leaves, spines and a core. The names that a 16,384-GPU
/// graph carries are the main cost, so they are composed once.
#include "clusters/build.h"

#include <algorithm>
#include <limits>

#include "base/ensure.h"
#include "clusters/routes.h"

namespace orrery::clusters {
namespace {

using Id = Graph::vertex_descriptor;

class Builder {
 public:
  explicit Builder(Cluster& cluster)
      : cluster_(cluster), node_(cluster.shape->node), network_(cluster.shape->network), graph_(cluster.graph) {}

  void run() {
    graph_ = Graph();
    cluster_.device_vertices.assign(static_cast<std::size_t>(cluster_.size()), 0);
    std::vector<std::vector<Id>> nics;
    for (int n = 0; n < cluster_.nodes; ++n) nics.push_back(add_node(n));
    if (cluster_.nodes > 1) add_network(nics);
  }

 private:
  Id vertex(VertexKind kind, std::string name, int node = -1, int device = -1) {
    return boost::add_vertex(Vertex{kind, std::move(name), node, device, Bytes{0}}, graph_);
  }
  void link(Id a, Id b, LinkKind kind, BytesPerSecond bandwidth, Seconds latency) {
    boost::add_edge(a, b, Link{kind, bandwidth, latency}, graph_);
  }

  /// Returns the node's NICs.
  std::vector<Id> add_node(int n) {
    const std::string prefix = "node" + std::to_string(n) + "/";
    const std::string device_word = cluster_.device().kind == DeviceKind::gpu ? "gpu" : "core";
    std::vector<Id> devices;
    for (int d = 0; d < cluster_.devices_per_node; ++d) {
      const int global = n * cluster_.devices_per_node + d;
      devices.push_back(vertex(VertexKind::device, prefix + device_word + std::to_string(d), n, global));
      cluster_.device_vertices[static_cast<std::size_t>(global)] = devices.back();
    }
    add_fabric(n, prefix, devices);
    return add_host(n, prefix, devices);
  }

  void add_fabric(int n, const std::string& prefix, const std::vector<Id>& devices) {
    const BytesPerSecond into_fabric = node_.link_bandwidth * node_.links;
    if (node_.fabric == NodeFabric::mesh) {
      for (const MeshEdge& e : node_.edges) {
        link(devices[static_cast<std::size_t>(e.a)], devices[static_cast<std::size_t>(e.b)], LinkKind::nvlink,
             node_.link_bandwidth * e.links, node_.latency);
      }
      return;
    }
    if (node_.fabric == NodeFabric::shared_memory) return;  // the host memory of add_host is the fabric
    std::vector<Id> boards;
    for (int b = 0; b < node_.boards; ++b) {
      boards.push_back(vertex(VertexKind::nvswitch, prefix + "nvswitch" + std::to_string(b), n));
      for (int a = 0; a < b; ++a) {
        link(boards[static_cast<std::size_t>(a)], boards.back(), LinkKind::nvlink, node_.trunk, Seconds{0});
      }
    }
    for (std::size_t d = 0; d < devices.size(); ++d) {
      link(devices[d], boards[d * boards.size() / devices.size()], LinkKind::nvlink, into_fabric, node_.latency / 2);
    }
  }

  std::vector<Id> add_host(int n, const std::string& prefix, const std::vector<Id>& devices) {
    std::vector<Id> sockets;
    for (int s = 0; s < node_.sockets; ++s) {
      sockets.push_back(vertex(VertexKind::cpu, prefix + "cpu" + std::to_string(s), n));
      if (s > 0) {
        link(sockets[static_cast<std::size_t>(s) - 1], sockets.back(), LinkKind::inter_socket, node_.socket_bandwidth,
             node_.socket_latency);
      }
      const Id memory = vertex(VertexKind::host_memory, prefix + "memory" + std::to_string(s), n);
      link(sockets.back(), memory, LinkKind::memory, node_.host_memory_bandwidth, Seconds{0});
    }
    const std::vector<Id> attach = add_pcie(n, prefix, sockets);
    const bool shared = node_.fabric == NodeFabric::shared_memory;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (shared) {
        link(devices[d], sockets[d * sockets.size() / devices.size()], LinkKind::memory, node_.link_bandwidth,
             node_.latency / 2);
      } else if (node_.pcie_switches > 0) {
        link(devices[d], attach[d * attach.size() / devices.size()], LinkKind::pcie, node_.pcie_bandwidth,
             node_.pcie_latency);
      }
    }
    std::vector<Id> nics;
    for (int i = 0; i < node_.nics; ++i) {
      nics.push_back(vertex(VertexKind::nic, prefix + "nic" + std::to_string(i), n));
      const Id to = attach[static_cast<std::size_t>(i) * attach.size() / static_cast<std::size_t>(node_.nics)];
      link(nics.back(), to, LinkKind::pcie, node_.pcie_bandwidth, node_.pcie_latency);
    }
    return nics;
  }

  /// What NICs and GPUs plug into: PCIe switches, or the sockets where there are none.
  std::vector<Id> add_pcie(int n, const std::string& prefix, const std::vector<Id>& sockets) {
    if (node_.pcie_switches == 0) return sockets;
    std::vector<Id> switches;
    for (int p = 0; p < node_.pcie_switches; ++p) {
      switches.push_back(vertex(VertexKind::pcie_switch, prefix + "pcie" + std::to_string(p), n));
      const std::size_t socket =
          static_cast<std::size_t>(p) * sockets.size() / static_cast<std::size_t>(node_.pcie_switches);
      link(switches.back(), sockets[socket], LinkKind::pcie, node_.pcie_bandwidth, node_.pcie_latency);
    }
    return switches;
  }

  void add_network(const std::vector<std::vector<Id>>& nics) {
    const int groups = leaf_group_of(cluster_, cluster_.nodes - 1) + 1;
    const int pods = pod_of(cluster_, cluster_.nodes - 1) + 1;
    std::vector<std::vector<Id>> leaves;
    std::vector<double> downlinks(static_cast<std::size_t>(groups), 0);  // bytes/s below one leaf of the group
    for (int g = 0; g < groups; ++g) {
      const int count = network_.rails ? node_.nics : 1;
      std::vector<Id> group;
      for (int i = 0; i < count; ++i) {
        group.push_back(vertex(VertexKind::leaf, "leaf" + std::to_string(g * count + i)));
      }
      leaves.push_back(std::move(group));
    }
    for (int n = 0; n < cluster_.nodes; ++n) {
      const auto group = static_cast<std::size_t>(leaf_group_of(cluster_, n));
      for (std::size_t i = 0; i < nics[static_cast<std::size_t>(n)].size(); ++i) {
        link(nics[static_cast<std::size_t>(n)][i], leaves[group][network_.rails ? i : 0], LinkKind::network,
             node_.nic_bandwidth, node_.nic_latency);
      }
      downlinks[group] += node_.nic_bandwidth.value * (network_.rails ? 1 : node_.nics);
    }
    if (groups > 1) add_spines(leaves, downlinks, pods);
  }

  void add_spines(const std::vector<std::vector<Id>>& leaves, const std::vector<double>& downlinks, int pods) {
    std::vector<double> into_spine(static_cast<std::size_t>(pods), 0);
    std::vector<Id> spines;
    for (int p = 0; p < pods; ++p) spines.push_back(vertex(VertexKind::spine, "spine" + std::to_string(p)));
    for (std::size_t g = 0; g < leaves.size(); ++g) {
      const auto pod = static_cast<std::size_t>(pod_of(cluster_, static_cast<int>(g) * network_.leaf_nodes));
      for (const Id leaf : leaves[g]) {
        const BytesPerSecond uplinks{downlinks[g] / network_.oversubscription};
        link(leaf, spines[pod], LinkKind::network, uplinks, network_.hop_latency);
        into_spine[pod] += uplinks.value;
      }
    }
    if (pods == 1) return;
    const Id core = vertex(VertexKind::core, "core");
    for (std::size_t p = 0; p < spines.size(); ++p) {
      link(spines[p], core, LinkKind::network, BytesPerSecond{into_spine[p] / network_.core_oversubscription},
           network_.hop_latency);
    }
  }

  Cluster& cluster_;
  const NodeShape& node_;
  const NetworkShape& network_;
  Graph& graph_;
};

/// NVLinks of the device that has the fewest, when each edge counts its links.
int fewest_mesh_links(const NodeShape& node, int devices) {
  std::vector<int> links(static_cast<std::size_t>(devices), 0);
  for (const MeshEdge& e : node.edges) {
    links[static_cast<std::size_t>(e.a)] += e.links;
    links[static_cast<std::size_t>(e.b)] += e.links;
  }
  return *std::min_element(links.begin(), links.end());
}

}  // namespace

int leaf_group_of(const Cluster& cluster, int node) {
  if (!cluster.shape || cluster.shape->network.leaf_nodes == 0) return 0;
  return node / cluster.shape->network.leaf_nodes;
}

int pod_of(const Cluster& cluster, int node) {
  if (!cluster.shape || cluster.shape->network.pod_nodes == 0) return 0;
  return node / cluster.shape->network.pod_nodes;
}

int nic_of(const NodeShape& node, int local_device, int devices_per_node) {
  return node.nics == 0 ? -1 : local_device * node.nics / devices_per_node;
}

double vertices_of(const NodeShape& node, double nodes, int devices_per_node) {
  // A leaf for each NIC at most; spines and core are fewer than nodes.
  return nodes * (devices_per_node + node.boards + node.pcie_switches + 2.0 * node.sockets + 2.0 * node.nics + 1) + 1;
}

void build(Cluster& cluster) {
  ENSURE(cluster.shape.has_value(), "cluster '{}' has no shape to build from", cluster.name);
  Builder(cluster).run();
  const NodeShape& node = cluster.shape->node;
  const bool mesh = node.fabric == NodeFabric::mesh;
  const int links = mesh ? fewest_mesh_links(node, cluster.devices_per_node) : node.links;
  cluster.intra = {node.fabric == NodeFabric::shared_memory ? "shared-memory" : "nvlink", node.link_bandwidth * links,
                   node.latency};
  cluster.nics_per_node = node.nics;
  cluster.oversubscription = cluster.shape->network.oversubscription;
  cluster.inter = {};
  if (cluster.nodes > 1) {
    // Device, PCIe switch, NIC, leaf and down again; a NIC on a socket has one PCIe link less.
    const double pcie_links = node.pcie_switches > 0 ? 2 : 1;
    const double device_side = node.fabric == NodeFabric::shared_memory ? node.latency.value / 2 : 0;
    cluster.inter = {cluster.shape->network.kind, node.nic_bandwidth * (1.0 * node.nics / cluster.devices_per_node),
                     Seconds{2 * (device_side + pcie_links * node.pcie_latency.value + node.nic_latency.value)}};
  }
}

void summarize(Cluster& cluster) {
  const int per_node = cluster.devices_per_node;
  const double endless = std::numeric_limits<double>::max();
  cluster.intra = {"nvlink", BytesPerSecond{endless}, Seconds{0}};
  for (int d = 0; d < per_node && per_node > 1; ++d) {
    const int next = (d + 1) % per_node;
    cluster.intra.bandwidth = std::min(cluster.intra.bandwidth, bottleneck(cluster, d, next));
    cluster.intra.latency = std::max(cluster.intra.latency, latency(cluster, d, next));
  }
  if (per_node == 1) cluster.intra.bandwidth = cluster.device().memory_bandwidth;
  if (cluster.device().kind == DeviceKind::cpu) cluster.intra.name = "shared-memory";
  cluster.inter = {};
  if (cluster.nodes == 1) return;
  double leaving = 0;
  const auto edges = boost::edges(cluster.graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const bool from = cluster.graph[boost::source(*e, cluster.graph)].node == 0;
    const bool to = cluster.graph[boost::target(*e, cluster.graph)].node == 0;
    if (from != to) leaving += cluster.graph[*e].bandwidth.value;
  }
  cluster.inter = {"network", BytesPerSecond{leaving / per_node}, latency(cluster, 0, per_node)};
}

}  // namespace orrery::clusters
