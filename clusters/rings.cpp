/// Wirings of groups: the search in each node that looks different, and the worst result; closed forms if there is
/// nothing to search (one device per node, CPU ranks, tori, full meshes).
#include "clusters/rings.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/ensure.h"
#include "base/index.h"
#include "clusters/nccl_search.h"

namespace orrery::clusters {
namespace {

using base::at;

constexpr double kGiga = 1e9;

using Members = std::map<int, std::vector<int>>;  ///< global devices by node, sorted

Members by_node(const Cluster& cluster, const std::vector<int>& members) {
  Members nodes;
  for (const int member : members) {
    ENSURE(member >= 0 && member < cluster.size(), "member {} of {} devices", member, cluster.size());
    nodes[cluster.node_of(member)].push_back(member);
  }
  for (auto& [node, inside] : nodes) std::sort(inside.begin(), inside.end());
  return nodes;
}

PathType type_of(int path) {
  switch (path) {
    case nccl::kLocal: return PathType::local;
    case nccl::kNvlink: return PathType::nvlink;
    case nccl::kRelay: return PathType::relay;
    case nccl::kPix: return PathType::pcie_switch;
    case nccl::kPxb: return PathType::pcie_switches;
    case nccl::kPxn: return PathType::nic_relay;
    case nccl::kPhb: return PathType::host_bridge;
    case nccl::kSys: return PathType::sockets;
    default: return PathType::none;
  }
}

/// Translates the system's GPUs into `members` of one node.
Channels converted(const nccl::Found& found, const std::vector<int>& members, bool inter) {
  Channels result;
  result.count = found.channels;
  result.intra = BytesPerSecond{found.intra * kGiga};
  result.inter = BytesPerSecond{(inter ? found.inter : found.intra) * kGiga};
  result.path_intra = type_of(found.type_intra);
  if (inter) result.path_inter = type_of(found.type_inter);
  result.cross_nic = inter && found.cross_nic != 0;
  const std::size_t gpus = members.size();
  for (std::size_t c = 0; c < at(found.channels); ++c) {
    Channel channel;
    const bool head = found.pattern == nccl::Pattern::nvls;  // the other devices have no order
    for (std::size_t g = 0; g < (head ? 1 : gpus); ++g) channel.order.push_back(members[at(found.order[c * gpus + g])]);
    if (inter && !found.nets.empty()) {
      channel.nic_in = found.nets[2 * c];
      channel.nic_out = found.nets[2 * c + 1] >= 0 ? found.nets[2 * c + 1] : found.nets[2 * c];
    }
    result.channels.push_back(std::move(channel));
  }
  return result;
}

struct Searched {
  Channels ring, tree, nvls;
};

/// If nothing fits: one channel in order, at the slowest speed (NCCL's fallback).
nccl::Found fallen_back(nccl::Found found, int gpus) {
  if (found.channels > 0) return found;
  found.channels = 1;
  found.intra = found.inter = .1F;
  found.type_intra = found.type_inter = nccl::kSys;
  found.order.clear();
  for (int g = 0; g < gpus; ++g) found.order.push_back(g);
  found.nets = {0, 0};
  return found;
}

Searched searched(const Cluster& cluster, const std::vector<int>& members, bool inter) {
  nccl::System system = nccl::system_of(cluster, members, inter);
  const int gpus = static_cast<int>(members.size());
  Searched result;
  if (inter && system.nets.empty()) return result;
  const nccl::Found ring = fallen_back(nccl::search(system, {.pattern = nccl::Pattern::ring}), gpus);
  // The tree has as many channels as the ring.
  const nccl::Found tree = fallen_back(
      nccl::search(system, {.pattern = nccl::Pattern::balanced_tree, .least = ring.channels, .most = ring.channels}),
      gpus);
  result.ring = converted(ring, members, inter);
  result.tree = converted(tree, members, inter);
  const bool multicast = cluster.shape ? cluster.shape->node.multicast : false;
  if (multicast && gpus > 1) {
    const nccl::Found nvls = nccl::search(system, {.pattern = nccl::Pattern::nvls});
    if (nvls.channels > 0) result.nvls = converted(nvls, members, inter);
  }
  return result;
}

/// The worse of each figure: fewer channels, less bandwidth, worse paths.
Channels worse(Channels a, const Channels& b) {
  a.count = std::min(a.count, b.count);
  a.channels.resize(std::min(a.channels.size(), at(a.count)));
  a.intra = std::min(a.intra, b.intra);
  a.inter = std::min(a.inter, b.inter);
  a.path_intra = std::max(a.path_intra, b.path_intra);
  a.path_inter = std::max(a.path_inter, b.path_inter);
  a.cross_nic = a.cross_nic || b.cross_nic;
  return a;
}

/// Channels along the members' links: as many as the member with the fewest has, each with a link's bandwidth. For tori
/// and full meshes, whose directed links split into that many rings: tori into Hamiltonian cycles (Kotzig 1973;
/// Foregger 1978 for three dimensions), complete directed graphs too, except for 4 and 6 vertices (Tillson 1980).
Channels along_links(const Cluster& cluster, const std::vector<int>& members) {
  const std::set<int> inside(members.begin(), members.end());
  const Graph& graph = *cluster.graph;
  Channels result;
  result.count = static_cast<int>(members.size());
  result.intra = BytesPerSecond{1e30};
  for (const int member : members) {
    int links = 0;
    const auto edges = boost::out_edges(cluster.device_vertices[at(member)], graph);
    for (auto e = edges.first; e != edges.second; ++e) {
      const Vertex& other = graph[boost::target(*e, graph)];
      if (graph[*e].kind != LinkKind::nvlink || other.device < 0 || !inside.contains(other.device)) continue;
      ++links;
      result.intra = std::min(result.intra, graph[*e].bandwidth * nccl::link_efficiency(cluster));
    }
    result.count = std::min(result.count, links);
  }
  result.inter = result.intra;
  if (result.count == 0) return {};
  result.path_intra = PathType::nvlink;
  std::vector<int> order(members.begin(), members.end());
  std::sort(order.begin(), order.end());
  for (int c = 0; c < result.count; ++c) result.channels.push_back({order, -1, -1});
  return result;
}

bool full_mesh(const Cluster& cluster) {
  if (!cluster.shape || cluster.shape->node.fabric != NodeFabric::mesh) return false;
  const auto n = static_cast<std::size_t>(cluster.devices_per_node);
  return n > 2 && cluster.shape->node.edges.size() == n * (n - 1) / 2;
}

/// CPU ranks: one path between any two, through shared memory or the network.
Channels of_cpus(const Cluster& cluster, const std::vector<int>& members, bool inter) {
  Channels result;
  result.count = 1;
  result.intra = cluster.intra.bandwidth;
  result.inter = inter ? cluster.inter.bandwidth : result.intra;
  result.path_intra = PathType::host_bridge;
  result.path_inter = inter ? PathType::host_bridge : PathType::none;
  result.channels.push_back({members, inter ? 0 : -1, inter ? 0 : -1});
  return result;
}

/// Nodes whose members have the same local indices have the same wiring, and are searched once.
Searched worst_of(const Cluster& cluster, const Members& nodes) {
  const bool inter = nodes.size() > 1;
  std::set<std::vector<int>> seen;
  Searched worst;
  for (const auto& [node, inside] : nodes) {
    std::vector<int> local;
    for (const int member : inside) local.push_back(member % cluster.devices_per_node);
    if (cluster.shape && !seen.insert(local).second) continue;
    Searched one = searched(cluster, inside, inter);
    if (node == nodes.begin()->first) {
      worst = std::move(one);
      continue;
    }
    worst.ring = worse(std::move(worst.ring), one.ring);
    worst.tree = worse(std::move(worst.tree), one.tree);
    worst.nvls = one.nvls.count == 0 ? Channels{} : worse(std::move(worst.nvls), one.nvls);
  }
  return worst;
}

}  // namespace

Wiring wiring_of(const Cluster& cluster, const std::vector<int>& members) {
  const Members nodes = by_node(cluster, members);
  Wiring wiring;
  wiring.ranks = static_cast<int>(members.size());
  wiring.nodes = static_cast<int>(nodes.size());
  for (const auto& [node, inside] : nodes) {
    wiring.per_node = std::max(wiring.per_node, static_cast<int>(inside.size()));
  }
  const bool inter = nodes.size() > 1;
  if (cluster.shape) {
    wiring.cpu = cluster.shape->node.cpu;
    wiring.switched = cluster.shape->node.fabric == NodeFabric::nvswitch;
    wiring.staged = inter && cluster.shape->network.staged;
    if (inter) wiring.message_latency = cluster.shape->network.message_latency;
  }
  const bool torus = cluster.shape && cluster.shape->node.fabric == NodeFabric::torus;
  if (cluster.device().kind == DeviceKind::cpu) {
    wiring.ring = wiring.tree = of_cpus(cluster, members, inter);
  } else if (torus || (full_mesh(cluster) && !inter && members.size() > 1)) {
    wiring.ring = wiring.tree = along_links(cluster, members);
  }
  if (wiring.ring.count == 0) {
    Searched found = worst_of(cluster, nodes);
    wiring.ring = std::move(found.ring);
    wiring.tree = std::move(found.tree);
    wiring.nvls = std::move(found.nvls);
  }
  wiring.direct = wiring.ring.path_intra <= PathType::relay;
  return wiring;
}

std::vector<int> ring_over(const Cluster& cluster, const std::vector<int>& members, int channel) {
  const Members nodes = by_node(cluster, members);
  const bool inter = nodes.size() > 1;
  std::map<std::vector<int>, Channels> known;  // by local devices
  std::vector<int> order;
  for (const auto& [node, inside] : nodes) {
    std::vector<int> local;
    for (const int member : inside) local.push_back(member - node * cluster.devices_per_node);
    auto found = known.find(local);
    if (found == known.end() || !cluster.shape) {
      Channels ring = wiring_of(cluster, inside).ring;
      if (inter && cluster.device().kind != DeviceKind::cpu) ring = searched(cluster, inside, true).ring;
      for (Channel& one : ring.channels) {
        for (int& device : one.order) device -= node * cluster.devices_per_node;
      }
      found = known.insert_or_assign(local, std::move(ring)).first;
    }
    const std::vector<Channel>& channels = found->second.channels;
    const std::vector<int>& here = channels.empty() ? local : channels[at(channel) % channels.size()].order;
    for (const int device : here) order.push_back(device + node * cluster.devices_per_node);
  }
  return order;
}

std::vector<TreeNode> binary_tree(int count) {
  ENSURE(count >= 1, "a tree over {} nodes", count);
  std::vector<TreeNode> tree(at(count));
  for (int n = 0; n < count; ++n) {
    int bit = 1;
    while (bit < count && !(bit & n)) bit <<= 1;
    TreeNode& node = tree[at(n)];
    if (n == 0) {
      node.down[1] = count > 1 ? bit >> 1 : -1;
      continue;
    }
    node.up = (n ^ bit) | (bit << 1);
    if (node.up >= count) node.up = n ^ bit;
    int low = bit >> 1;
    if (low == 0) continue;
    node.down[0] = n - low;
    int right = n + low;
    while (right >= count) {
      right = low == 0 ? -1 : n + low;
      low >>= 1;
    }
    node.down[1] = right;
  }
  return tree;
}

std::vector<TreeNode> second_binary_tree(int count) {
  const std::vector<TreeNode> first = binary_tree(count);
  std::vector<TreeNode> tree(at(count));
  // Odd: shifted by one; even: mirrored.
  const bool odd = count % 2 == 1;
  const auto moved = [&](int n) { return n < 0 ? -1 : odd ? (n + 1) % count : count - 1 - n; };
  for (int n = 0; n < count; ++n) {
    const TreeNode& from = first[at(odd ? (n - 1 + count) % count : count - 1 - n)];
    tree[at(n)] = {moved(from.up), {moved(from.down[0]), moved(from.down[1])}};
  }
  return tree;
}

const char* name_of(PathType type) {
  switch (type) {
    case PathType::local: return "LOC";
    case PathType::nvlink: return "NVL";
    case PathType::relay: return "NVB";
    case PathType::pcie_switch: return "PIX";
    case PathType::pcie_switches: return "PXB";
    case PathType::nic_relay: return "PXN";
    case PathType::host_bridge: return "PHB";
    case PathType::sockets: return "SYS";
    case PathType::none: return "none";
  }
  return "";
}

}  // namespace orrery::clusters
