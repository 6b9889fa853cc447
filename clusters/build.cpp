/// Builds the graph of a regular cluster: node by node, then leaves, spines and a core. The names in a 16,384-GPU graph
/// are the main cost, so they are composed once.
#include "clusters/build.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::clusters {
namespace {

using Id = Graph::vertex_descriptor;

class ClusterBuilder {
 public:
  explicit ClusterBuilder(Cluster& cluster)
      : cluster_(cluster), node_(cluster.shape->node), network_(cluster.shape->network), graph_(cluster.graph.edit()) {}

  void run() {
    cluster_.device_vertices.assign(static_cast<std::size_t>(cluster_.size()), 0);
    std::vector<std::vector<Id>> nics;
    nics.reserve(static_cast<std::size_t>(cluster_.nodes));
    for (int n = 0; n < cluster_.nodes; ++n) nics.push_back(add_node(n));
    if (node_.fabric == NodeFabric::torus) {
      add_torus();
    } else if (cluster_.nodes > 1) {
      add_network(nics);
    }
    add_frontend();
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
    const std::string device_word = cluster_.device().kind != DeviceKind::cpu ? "gpu" : "core";
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
    }
    if (node_.fabric != NodeFabric::nvswitch) return;  // host memory and PCIe: add_host; torus: add_torus
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

  /// Sockets with their memory, drives and front-end NICs.
  struct Host {
    std::vector<Id> sockets, memories;
  };

  Host add_sockets(int n, const std::string& prefix) {
    Host host;
    for (int s = 0; s < node_.sockets; ++s) {
      host.sockets.push_back(vertex(VertexKind::cpu, prefix + "cpu" + std::to_string(s), n));
      if (s > 0) {
        link(host.sockets[static_cast<std::size_t>(s) - 1], host.sockets.back(), LinkKind::inter_socket,
             node_.socket_bandwidth, node_.socket_latency);
      }
      host.memories.push_back(vertex(VertexKind::host_memory, prefix + "memory" + std::to_string(s), n));
      graph_[host.memories.back()].capacity = node_.host_memory / node_.sockets;
      link(host.sockets.back(), host.memories.back(), LinkKind::memory, node_.host_memory_bandwidth,
           node_.host_memory_latency);
    }
    // The drives of a socket are striped: one vertex.
    std::vector<int> drives(host.sockets.size(), 0);
    for (int i = 0; i < node_.nvme; ++i) ++drives[static_cast<std::size_t>(i) % drives.size()];
    for (std::size_t s = 0; s < drives.size(); ++s) {
      if (drives[s] == 0) continue;
      const Id nvme = vertex(VertexKind::nvme, prefix + "nvme" + std::to_string(s), n);
      graph_[nvme].capacity = node_.nvme_capacity * drives[s];
      link(nvme, host.sockets[s], LinkKind::pcie, std::max(node_.nvme_read, node_.nvme_write) * drives[s],
           node_.nvme_latency);
    }
    return host;
  }

  std::vector<Id> add_host(int n, const std::string& prefix, const std::vector<Id>& devices) {
    const Host host = add_sockets(n, prefix);
    const std::vector<Id>& sockets = host.sockets;
    const std::vector<Id> attach = add_pcie(n, prefix, sockets);
    const bool shared = node_.fabric == NodeFabric::shared_memory;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (shared) {
        link(devices[d], sockets[d * sockets.size() / devices.size()], LinkKind::memory, node_.link_bandwidth,
             node_.latency / 2);
      } else if (node_.pcie_bandwidth.value > 0) {
        link(devices[d], attach[d * attach.size() / devices.size()], LinkKind::pcie, node_.pcie_bandwidth,
             node_.pcie_latency);
      }
    }
    for (int i = 0; i < node_.frontend_nics; ++i) {
      const Id nic = vertex(VertexKind::nic, prefix + "frontend" + std::to_string(i), n);
      link(nic, sockets[spread(i, sockets.size(), node_.frontend_nics)], LinkKind::frontend, node_.frontend_bandwidth,
           node_.frontend_latency);
      frontend_nics_.push_back(nic);
    }
    // A staged message reaches the NIC from host memory.
    const std::vector<Id>& to = network_.staged ? host.memories : node_.nics_at_cpu ? sockets : attach;
    std::vector<Id> nics;
    for (int i = 0; i < node_.nics; ++i) {
      nics.push_back(vertex(VertexKind::nic, prefix + "nic" + std::to_string(i), n));
      link(nics.back(), to[spread(i, to.size(), node_.nics)], LinkKind::pcie, node_.pcie_bandwidth, node_.pcie_latency);
    }
    return nics;
  }

  /// The one of `places` that part i of `parts` sits on.
  static std::size_t spread(int i, std::size_t places, int parts) {
    return static_cast<std::size_t>(i) * places / static_cast<std::size_t>(parts);
  }

  /// What NICs and GPUs plug into: PCIe switches, or the sockets if there are none.
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

  void add_frontend() {
    if (frontend_nics_.empty() || cluster_.nodes < 2) return;
    const Id all = vertex(VertexKind::leaf, "frontend");
    for (const Id nic : frontend_nics_)
      link(nic, all, LinkKind::frontend, node_.frontend_bandwidth, node_.frontend_latency);
  }

  /// Links each device to the next one in each dimension; wraps around if there are more than two.
  void add_torus() {
    const Torus torus = torus_of(cluster_);
    std::vector<int> at(torus.dims.size(), 0);
    for (int i = 0; i < cluster_.size(); ++i) {
      const int device = torus.device(at);
      for (std::size_t d = 0; d < at.size(); ++d) {
        const int here = at[d], extent = torus.dims[d];
        if (extent > 2 || (extent == 2 && here == 0)) {
          at[d] = (here + 1) % extent;
          link(cluster_.device_vertices[static_cast<std::size_t>(device)],
               cluster_.device_vertices[static_cast<std::size_t>(torus.device(at))], LinkKind::nvlink,
               node_.link_bandwidth, node_.latency);
          at[d] = here;
        }
      }
      for (std::size_t d = 0; d < at.size() && ++at[d] == torus.dims[d]; ++d) at[d] = 0;
    }
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
  std::vector<Id> frontend_nics_;
};

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
  // At most one leaf per NIC; spines and core are fewer than nodes.
  return nodes * (devices_per_node + node.boards + node.pcie_switches + 3.0 * node.sockets + 2.0 * node.nics +
                  node.frontend_nics + 1) +
         2;
}

int Torus::device(const std::vector<int>& at) const {
  int node = 0, local = 0, devices = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    node = node * (dims[d] / block[d]) + at[d] / block[d];
    local = local * block[d] + at[d] % block[d];
    devices *= block[d];
  }
  return node * devices + local;
}

std::vector<int> Torus::place(int device) const {
  int per_node = 1;
  for (const int extent : block) per_node *= extent;
  int node = device / per_node, local = device % per_node;
  std::vector<int> at;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    at.push_back(node % (dims[d] / block[d]) * block[d] + local % block[d]);
    node /= dims[d] / block[d], local /= block[d];
  }
  return at;
}

Torus torus_of(const Cluster& cluster) {
  ENSURE(cluster.shape && cluster.shape->node.fabric == NodeFabric::torus, "'{}' is not a torus", cluster.name);
  const std::vector<int>&dims = cluster.shape->network.torus, &block = cluster.shape->node.block;
  return {dims.empty() ? block : dims, block};
}

namespace {

/// Tries every way to split `nodes` over the dimensions from `d` on.
void split(const std::vector<int>& block, std::size_t d, int nodes, std::vector<int>& dims, std::vector<int>& best) {
  if (d + 1 == block.size()) {
    dims[d] = block[d] * nodes;
    const auto extent = [](const std::vector<int>& of) { return *std::max_element(of.begin(), of.end()); };
    // Among boxes of equal size, the one with the shortest long side, and the first of these.
    if (best.empty() || extent(dims) < extent(best)) best = dims;
    return;
  }
  for (int part = 1; part <= nodes; ++part) {
    if (nodes % part != 0) continue;
    dims[d] = block[d] * part;
    split(block, d + 1, nodes / part, dims, best);
  }
}

}  // namespace

std::vector<int> torus_for(const std::vector<int>& block, int nodes) {
  if (block.empty() || nodes < 1) return {};
  std::vector<int> dims(block.size()), best;
  split(block, 0, nodes, dims, best);
  return best;
}

void build(Cluster& cluster) {
  ENSURE(cluster.shape.has_value(), "cluster '{}' has no shape to build from", cluster.name);
  cluster.graph = {};
  ClusterBuilder(cluster).run();
  describe(cluster);
}

}  // namespace orrery::clusters
