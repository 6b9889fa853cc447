/// Checks of a regular cluster that concern several of its parts.
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "base/units.h"
#include "clusters/build.h"
#include "clusters/read_parts.h"

namespace orrery::clusters {

using base::Cursor;

namespace {

/// The deepest of these keys that the file has; `like` if the part comes from there.
Cursor place(const Cursor& root, std::initializer_list<const char*> keys) {
  Cursor at = root;
  for (const char* key : keys) {
    if (!at.is_map() || !at.has(key)) break;
    at = at.at(key);
  }
  return at.path() == root.path() && root.has("like") ? root.at("like") : at;
}

void check_boards(const Cursor& root, int devices, NodeShape& node) {
  if (node.boards <= devices && devices % node.boards == 0) return;
  place(root, {"node", "fabric", "boards"})
      .error("C04", fmt::format("{} devices do not divide evenly among {} boards", devices, node.boards),
             "use a number that divides the devices");
  node.boards = 1;
}

/// Reports devices that neither the mesh nor PCIe connects to device 0.
void check_mesh(const Cursor& root, int devices, const NodeShape& node) {
  const Cursor at = place(root, {"node", "fabric", "edges"});
  std::vector<int> island(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) island[static_cast<std::size_t>(d)] = d;
  std::vector<bool> linked(island.size(), devices == 1);
  for (const MeshEdge& e : node.edges) {
    if (std::max(e.a, e.b) >= devices) {  // edges come from `like`, and this cluster has fewer devices
      at.error("C02",
               fmt::format("the link leads to device {}, but a node has {} devices", std::max(e.a, e.b), devices),
               "give 'fabric' in 'node' too");
      return;
    }
    linked[static_cast<std::size_t>(e.a)] = linked[static_cast<std::size_t>(e.b)] = true;
    const int from = island[static_cast<std::size_t>(e.b)], to = island[static_cast<std::size_t>(e.a)];
    std::replace(island.begin(), island.end(), std::max(from, to), std::min(from, to));
  }
  if (node.pcie_bandwidth.value > 0) return;
  for (std::size_t d = 0; d < island.size(); ++d) {
    if (!linked[d]) {
      at.error("C05", fmt::format("device {} has no link in the mesh", d), "give it an edge, or give 'pcie'");
    } else if (island[d] != 0 && linked[0]) {
      at.error("C05", fmt::format("devices 0 and {} are not connected", d), "give an edge, or give 'pcie'");
      return;
    }
  }
}

double product(const std::vector<int>& extents) {
  double all = 1;
  for (const int extent : extents) all *= extent;
  return all;
}
std::string words(const std::vector<int>& extents) {
  std::string text;
  for (const int extent : extents) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

void check_torus(const Cursor& root, const Cluster& cluster) {
  const std::vector<int>&block = cluster.shape->node.block, &dims = cluster.shape->network.torus;
  const Cursor at_block = place(root, {"node", "fabric", "block"});
  if (block.empty() || block.size() > kMostDimensions) {
    at_block.error("C04", fmt::format("a block of {} dimensions", block.size()),
                   fmt::format("give 1 to {} numbers", kMostDimensions));
    return;
  }
  if (product(block) != cluster.devices_per_node) {
    at_block.error("C04",
                   fmt::format("a block of {} is not a node's {} devices", words(block), cluster.devices_per_node),
                   "the product of the numbers must be 'devices'");
  }
  const Cursor at_dims = place(root, {"fabric", "dims"});
  if (dims.empty()) {
    if (cluster.nodes > 1)
      at_dims.error("C05", "nothing connects the nodes of the torus", "give 'fabric: {kind: torus, dims: [...]}'");
    return;
  }
  bool whole = dims.size() == block.size();
  for (std::size_t d = 0; whole && d < dims.size(); ++d) whole = dims[d] % block[d] == 0;
  if (!whole) {
    at_dims.error("C04", fmt::format("a torus of {} does not divide into blocks of {}", words(dims), words(block)),
                  "give as many numbers as the block has, each a multiple of the block's");
  } else if (product(dims) != 1.0 * cluster.nodes * cluster.devices_per_node) {
    at_dims.error("C04",
                  fmt::format("a torus of {} has {:.0f} devices, and {} nodes have {:.0f}", words(dims), product(dims),
                              cluster.nodes, 1.0 * cluster.nodes * cluster.devices_per_node),
                  "leave 'nodes' out, or correct it");
  }
}

/// The slowest NIC that a kind of network has, and what is usual there.
struct SlowestNic {
  const char* kind;
  double gigabits;
  const char* usual;
};

const SlowestNic& slowest_nic(const std::string& kind) {
  // InfiniBand's SDR over one lane carries 2 Gb/s, fast Ethernet 0.1; no other network is slower than the former.
  static constexpr SlowestNic kSlowest[] = {
      {"ethernet", 0.1, "one NIC has 1 to 800 Gb/s"},
      {"tcp", 0.1, "one NIC has 0.1 to 100 Gb/s"},
  };
  static constexpr SlowestNic kOthers = {"", 2, "one NIC has 100 to 800 Gb/s"};
  const auto* found = std::ranges::find_if(kSlowest, [&](const SlowestNic& one) { return kind == one.kind; });
  return found == std::end(kSlowest) ? kOthers : *found;
}

/// Reports links that are faster than what they carry can be read, and NICs slower than any of their network's.
void check_rates(const Cursor& root, const Cluster& cluster) {
  const BytesPerSecond memory = cluster.device().memory_bandwidth;
  if (cluster.device().kind == DeviceKind::cpu || memory.value <= 0) return;  // 0: the device could not be read
  const NodeShape& node = cluster.shape->node;
  const auto bound = [&](std::initializer_list<const char*> keys, const char* what, BytesPerSecond rate,
                         const char* usual) {
    if (rate > memory)
      place(root, keys)
          .error("C04",
                 fmt::format("{} of {} is faster than a device's memory, {}", what, base::human(rate),
                             base::human(memory)),
                 usual);
  };
  bound({"node", "nics", "bandwidth"}, "a NIC", node.nic_bandwidth, "one NIC has 400 Gb/s, which are 50 GB/s");
  bound({"node", "pcie", "bandwidth"}, "a PCIe link", node.pcie_bandwidth,
        "16 lanes of PCIe 4 carry 32 GB/s, of PCIe 5 64 GB/s");
  bound({"node", "fabric", "link_bandwidth"}, "a link between devices", node.link_bandwidth,
        "give the bandwidth of one link in one direction: 25 GB/s of NVLink 2 to 4, 50 GB/s of NVLink 5");
  const SlowestNic& least = slowest_nic(cluster.shape->network.kind);
  constexpr double kGigabit = 1e9 / 8;
  // Of one node without `fabric` nobody named the network.
  const bool asked = (root.has("fabric") || cluster.nodes > 1) && !cluster.shape->network.kind.empty();
  if (asked && node.nics > 0 && node.nic_bandwidth.value < least.gigabits * kGigabit)
    place(root, {"node", "nics", "bandwidth"})
        .error("C04",
               fmt::format("a NIC of {:g} Gb/s is slower than any of {}", node.nic_bandwidth.value / kGigabit,
                           cluster.shape->network.kind),
               least.usual);
}

/// Checks that something connects the devices of a node, and its NICs to them.
void check_node(const Cursor& root, const Cluster& cluster) {
  const NodeShape& node = cluster.shape->node;
  const bool pcie = node.pcie_bandwidth.value > 0;
  const BytesPerSecond links = node.link_bandwidth * std::max(1, node.links);
  const BytesPerSecond memory = cluster.device().memory_bandwidth;
  if (node.fabric == NodeFabric::nvswitch && memory.value > 0 && links > memory && node.link_bandwidth <= memory) {
    place(root, {"node", "fabric", "link_bandwidth"})
        .error("C04",
               fmt::format("a device's {} links carry {}, more than its memory's {}", node.links, base::human(links),
                           base::human(memory)),
               "give the bandwidth of one link in one direction: 25 GB/s of NVLink 2 to 4, 50 GB/s of NVLink 5");
  }
  if (node.fabric == NodeFabric::none && !pcie) {
    place(root, {"node", "fabric", "kind"}).error("C05", "nothing connects the devices of a node", "give 'pcie'");
  }
  if (node.nics > 0 && !pcie) {
    place(root, {"node", "nics"})
        .error("C05", "the NICs are connected to no device",
               "give 'pcie': the links that NICs and devices have to its switches, or to the sockets");
  }
}

void check_nodes(const Cursor& root, const Cluster& cluster, bool network_given) {
  const Shape& shape = *cluster.shape;
  const Cursor at = place(root, {"nodes"});
  if (shape.node.fabric != NodeFabric::torus && cluster.nodes > 1) {
    if (!network_given) {
      at.error("C05", fmt::format("nothing connects the {} nodes", cluster.nodes),
               "give 'fabric', the network above the NICs");
    }
    if (shape.node.nics == 0) {
      at.error("C05", fmt::format("nothing connects the {} nodes: a node has no NICs", cluster.nodes),
               "give 'nics' in 'node'");
    }
  }
  if (1.0 * cluster.nodes * cluster.devices_per_node > kMostDevices) {
    at.error("C11", fmt::format("{} nodes have more than {} devices", cluster.nodes, kMostDevices), "use fewer nodes");
  } else if (vertices_of(shape.node, cluster.nodes, cluster.devices_per_node) > kMostVertices) {
    at.error("C11", fmt::format("{} nodes make a larger graph than Orrery builds", cluster.nodes),
             fmt::format("it builds graphs of up to {:.0f} vertices", kMostVertices));
  }
}

}  // namespace

void check_shape(const Cursor& at, Cluster& cluster) {
  NodeShape& node = cluster.shape->node;
  const bool torus = node.fabric == NodeFabric::torus;
  // A torus's dimensions determine the number of nodes.
  const std::vector<int>& dims = cluster.shape->network.torus;
  if (torus && !dims.empty() && !at.has("nodes"))
    cluster.nodes = static_cast<int>(std::min<double>(kMostDevices, product(dims) / cluster.devices_per_node));
  check_boards(at, cluster.devices_per_node, node);
  if (node.fabric == NodeFabric::mesh) check_mesh(at, cluster.devices_per_node, node);
  if (torus) check_torus(at, cluster);
  if (!torus && !dims.empty())
    place(at, {"fabric", "dims"})
        .error("C04", "a torus of nodes that are not tori themselves", "give 'fabric: {kind: torus}' in 'node'");
  check_rates(at, cluster);
  check_node(at, cluster);
  check_nodes(at, cluster, at.has("fabric") || at.has("like"));
}

}  // namespace orrery::clusters
