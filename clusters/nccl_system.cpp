/// Translates one node of the cluster's graph into NCCL's terms, and finds paths by NCCL's breadth-first search.
#include "clusters/nccl_system.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::clusters::nccl {
namespace {

using base::at;

using Id = Graph::vertex_descriptor;

constexpr double kGiga = 1e9;
constexpr float kLocalBandwidth = 5000;  // LOC_BW
// PCI_BW is 12 for a generation-3 link whose datasheet says 15.75 GB/s; 24 and 48 for the next two generations.
constexpr double kPcieEfficiency = 12 / 15.75;
constexpr int kMostChannels = 64;  // MAXCHANNELS

int capability_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::volta: return 70;
    case Architecture::hopper: return 90;
    case Architecture::blackwell: return 100;
    case Architecture::cpu:
    case Architecture::generic:
    case Architecture::ampere: return 80;
  }
  return 80;
}

class NcclSystemBuilder {
 public:
  NcclSystemBuilder(const Cluster& cluster, const std::vector<int>& members, bool inter)
      : cluster_(cluster), efficiency_(link_efficiency(cluster)) {
    system_.inter = inter;
    system_.capability = capability_of(cluster.device().architecture);
    if (cluster.shape) system_.vendor = cluster.shape->node.cpu;
    const Graph& graph = *cluster.graph;
    const int node = cluster.node_of(members.front());
    for (const int member : members) add(cluster.device_vertices[at(member)]);
    // Breadth first from the members through the node, but not through devices outside the group.
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const auto edges = boost::out_edges(seen_[i], graph);
      for (auto e = edges.first; e != edges.second; ++e) {
        const Vertex& other = graph[boost::target(*e, graph)];
        if (graph[*e].kind == LinkKind::frontend) continue;
        if (other.node == node && wanted(other.kind)) add(boost::target(*e, graph));
      }
    }
    number_nics();
    for (std::size_t i = 0; i < seen_.size(); ++i) read_links(static_cast<int>(i));
  }

  System take() {
    for (int n = 0; n < static_cast<int>(system_.nodes.size()); ++n) {
      const NodeKind kind = system_.nodes[at(n)].kind;
      if (kind == NodeKind::gpu) system_.gpus.push_back(n);
      if (kind == NodeKind::nvswitch) system_.switches.push_back(n);
      if (kind == NodeKind::cpu) system_.cpus.push_back(n);
      if (kind == NodeKind::net) system_.nets.push_back(n);
    }
    const auto by_number = [&](int a, int b) { return system_.nodes[at(a)].number < system_.nodes[at(b)].number; };
    std::stable_sort(system_.gpus.begin(), system_.gpus.end(), by_number);
    std::stable_sort(system_.nets.begin(), system_.nets.end(), by_number);
    for (const int net : system_.nets) {
      system_.net_bandwidth.push_back(system_.links[at(system_.nodes[at(net)].links.front())].bandwidth);
    }
    return std::move(system_);
  }

 private:
  static bool wanted(VertexKind kind) {
    return kind != VertexKind::device && kind != VertexKind::nvme && kind != VertexKind::leaf;
  }

  void add(Id vertex) {
    if (index_.contains(vertex)) return;
    const Vertex& v = (*cluster_.graph)[vertex];
    Node node;
    switch (v.kind) {
      case VertexKind::device:
        node.kind = NodeKind::gpu;
        node.number = v.device % cluster_.devices_per_node;
        break;
      case VertexKind::nvswitch: node.kind = NodeKind::nvswitch; break;
      case VertexKind::nic: node.kind = NodeKind::nic; break;
      case VertexKind::cpu:
      case VertexKind::host_memory: node.kind = NodeKind::cpu; break;
      case VertexKind::pcie_switch:
      case VertexKind::nvme:
      case VertexKind::leaf:
      case VertexKind::spine:
      case VertexKind::core: node.kind = NodeKind::pci; break;
    }
    index_[vertex] = static_cast<int>(seen_.size());
    seen_.push_back(vertex);
    system_.nodes.push_back(std::move(node));
  }

  /// Numbers NICs in the order of the graph, not of the search.
  void number_nics() {
    int number = 0;
    for (const auto& [vertex, n] : index_) {
      if (system_.nodes[at(n)].kind == NodeKind::nic) system_.nodes[at(n)].number = number++;
    }
  }

  void link(int a, int b, int type, double gigabytes) {
    const int forth = static_cast<int>(system_.links.size());
    const auto bandwidth = static_cast<float>(gigabytes);
    system_.links.push_back({a, b, type, bandwidth, forth + 1});
    system_.links.push_back({b, a, type, bandwidth, forth});
    system_.nodes[at(a)].links.push_back(forth);
    system_.nodes[at(b)].links.push_back(forth + 1);
  }

  void read_links(int n) {
    const Graph& graph = *cluster_.graph;
    const auto edges = boost::out_edges(seen_[at(n)], graph);
    for (auto e = edges.first; e != edges.second; ++e) {
      const Link_ read{graph[*e].kind, graph[*e].bandwidth.value / kGiga};
      const Id other = boost::target(*e, graph);
      if (read.kind == LinkKind::network && graph[seen_[at(n)]].kind == VertexKind::nic) {
        add_net(n, read.gigabytes);
        continue;
      }
      const auto found = index_.find(other);
      if (found == index_.end() || found->second < n) continue;  // each link once
      switch (read.kind) {
        case LinkKind::nvlink: link(n, found->second, kNvlink, read.gigabytes * efficiency_); break;
        case LinkKind::pcie: link(n, found->second, kPix, read.gigabytes * kPcieEfficiency); break;
        case LinkKind::inter_socket: link(n, found->second, kSys, read.gigabytes); break;
        case LinkKind::memory: link(n, found->second, kPix, read.gigabytes); break;
        case LinkKind::network:
        case LinkKind::frontend: break;
      }
    }
  }

  /// Adds one port of a NIC; each port is a net of its own.
  void add_net(int nic, double gigabytes) {
    if (!system_.inter) return;
    const int net = static_cast<int>(system_.nodes.size());
    system_.nodes.push_back({NodeKind::net, system_.nodes[at(nic)].number, {}});
    link(net, nic, kNet, gigabytes);
  }

  struct Link_ {
    LinkKind kind;
    double gigabytes;
  };

  const Cluster& cluster_;
  const double efficiency_;
  System system_;
  std::map<Id, int> index_;
  std::vector<Id> seen_;
};

/// ncclTopoSetPaths: breadth first from `base`, the widest path with the fewest hops; fills the paths to `base`.
void set_paths(System& s, int base) {
  s.paths[at(base)][at(base)] = {{}, kLocalBandwidth, kLocal};
  std::vector<int> front{base};
  while (!front.empty()) {
    std::vector<int> next;
    for (const int node : front) {
      for (const int l : s.nodes[at(node)].links) {
        const Link& link = s.links[at(l)];
        const Path& path = s.paths[at(node)][at(base)];
        Path& other = s.paths[at(link.to)][at(base)];
        const NodeKind kind = s.nodes[at(node)].kind, to = s.nodes[at(link.to)].kind;
        // A path may pass through a GPU only over NVLinks, and only through one.
        if (node != base && kind == NodeKind::gpu &&
            (link.type != kNvlink || to != NodeKind::gpu || path.links.size() > 1)) {
          continue;
        }
        const float bandwidth = std::min(path.bandwidth, link.bandwidth);
        if (!(other.bandwidth == 0 || other.links.size() > path.links.size()) || other.bandwidth >= bandwidth) continue;
        int type = link.type == kNet ? kLocal : link.type;
        if (kind == NodeKind::pci && to == NodeKind::pci) type = kPxb;
        if (link.type == kPix && (kind == NodeKind::cpu || to == NodeKind::cpu)) type = kPhb;
        if (kind == NodeKind::gpu && path.type == kNvlink && type == kNvlink && !path.links.empty()) type = kRelay;
        Path found{{link.reverse}, bandwidth, std::max(path.type, type)};
        found.links.insert(found.links.end(), path.links.begin(), path.links.end());
        other = std::move(found);
        if (std::find(next.begin(), next.end(), link.to) == next.end()) next.push_back(link.to);
      }
    }
    front = std::move(next);
  }
}

/// Those of `among` that `from` reaches with the most bandwidth, and the nearest of these (ncclTopoGetLocal).
std::vector<int> nearest(const System& s, int from, const std::vector<int>& among) {
  std::vector<int> best;
  float bandwidth = 0;
  int type = kNone;
  for (std::size_t i = 0; i < among.size(); ++i) {
    const Path& path = s.path(from, among[i]);
    if (path.type >= kNone) continue;
    if (path.bandwidth > bandwidth || (path.bandwidth == bandwidth && path.type < type)) {
      bandwidth = path.bandwidth;
      type = path.type;
      best.clear();
    }
    if (path.bandwidth == bandwidth && path.type == type) best.push_back(static_cast<int>(i));
  }
  return best;
}

/// The bits of `value` below `power`, reversed.
int mirrored(int value, int power) {
  int result = 0;
  for (int mask = 1, mirror = power >> 1; mask < power; mask <<= 1, mirror >>= 1) {
    if (value & mask) result |= mirror;
  }
  return result;
}

/// ncclTopoGetLocalGpu: the GPU whose preferred net this is.
int local_gpu(const System& s, int net) {
  const std::vector<int> near = nearest(s, s.nets[at(net)], s.gpus);
  for (std::size_t channel = 0; channel < kMostChannels; ++channel) {
    for (const int gpu : near) {
      const std::vector<int> nets = local_nets(s, gpu);
      if (!nets.empty() && nets[channel % nets.size()] == net) return gpu;
    }
  }
  return -1;
}

/// Routes `from` to `to` through `over` (addInterStep).
void divert(System& s, int from, int over, int to, std::optional<int> type) {
  const Path &first = s.path(from, over), &second = s.path(over, to);
  Path path = first;
  path.links.insert(path.links.end(), second.links.begin(), second.links.end());
  path.bandwidth = std::min(first.bandwidth, second.bandwidth);
  path.type = type.value_or(std::max(first.type, second.type));
  s.paths[at(from)][at(to)] = std::move(path);
}

/// PXN: GPUs without a NIC of their own reach one through the GPU next to it.
void relay_to_nets(System& s) {
  for (std::size_t n = 0; n < s.nets.size(); ++n) {
    const int net = s.nets[n];
    const int local = local_gpu(s, static_cast<int>(n));
    if (local < 0) continue;
    const int peer = s.gpus[at(local)];
    for (const int gpu : s.gpus) {
      if (gpu == peer) continue;
      const Path &own = s.path(gpu, net), &near = s.path(peer, net);
      const bool better = near.bandwidth > own.bandwidth || own.type > kPxn;
      if (near.type <= kPxb && s.path(peer, gpu).type <= kNvlink && better) divert(s, gpu, peer, net, kPxn);
    }
  }
}

/// ncclTopoSearchInit.
void measure(System& s) {
  if (!s.inter && s.gpus.size() == 1) {
    s.most = s.total = kLocalBandwidth;
    return;
  }
  for (const int gpu : s.gpus) {
    for (const int to : s.inter ? s.nets : s.gpus) {
      if (to != gpu) s.most = std::max(s.most, s.path(gpu, to).bandwidth);
    }
    float nvlink = 0, pci = 0;
    for (const int l : s.nodes[at(gpu)].links) {
      if (s.links[at(l)].type == kNvlink) nvlink += s.links[at(l)].bandwidth;
      if (s.links[at(l)].type == kPix) pci = s.links[at(l)].bandwidth;
    }
    s.total = std::max({s.total, pci, nvlink});
  }
}

}  // namespace

double link_efficiency(const Cluster& cluster) {
  if (cluster.shape && cluster.shape->node.link_efficiency > 0) return cluster.shape->node.link_efficiency;
  // SM70_NVLINK_BW and similar, divided by the datasheet's 25 or 50 GB/s per link.
  switch (cluster.device().architecture) {
    case Architecture::volta:
    case Architecture::ampere: return 20.0 / 25;
    case Architecture::hopper: return 20.6 / 25;
    case Architecture::blackwell: return 40.1 / 50;
    case Architecture::cpu:
    case Architecture::generic: return 1;
  }
  return 1;
}

std::vector<int> local_nets(const System& s, int gpu) {
  const std::vector<int> nets = nearest(s, s.gpus[at(gpu)], s.nets);
  if (nets.empty()) return {};
  const int count = static_cast<int>(nets.size());
  const auto sharing = static_cast<int>(nearest(s, s.nets[at(nets.front())], s.gpus).size());
  const int number = s.nodes[at(s.gpus[at(gpu)])].number;
  const bool power = (count & (count - 1)) == 0;
  const int first = power ? mirrored(number, count) : number;
  const int stride = (count + sharing - 1) / std::max(1, sharing);
  std::vector<int> order;
  for (int channel = 0; channel < kMostChannels; ++channel) {
    const int net = nets[at((first + channel * stride) % count)];
    if (!order.empty() && net == order.front()) break;
    order.push_back(net);
  }
  return order;
}

System system_of(const Cluster& cluster, const std::vector<int>& members, bool inter) {
  ENSURE(!members.empty(), "a group without members");
  System s = NcclSystemBuilder(cluster, members, inter).take();
  s.paths.assign(s.nodes.size(), std::vector<Path>(s.nodes.size()));
  for (const auto* bases : {&s.cpus, &s.gpus, &s.nets, &s.switches}) {
    for (const int base : *bases) set_paths(s, base);
  }
  relay_to_nets(s);
  for (std::size_t n = 0; n < s.nets.size(); ++n) s.local_gpu.push_back(local_gpu(s, static_cast<int>(n)));
  measure(s);
  return s;
}

}  // namespace orrery::clusters::nccl
