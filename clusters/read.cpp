/// Reads a cluster: the brief form (device, node, fabric, how many) and `like`, another cluster in another size. The
/// link-by-link form is in links.cpp.
#include "clusters/read.h"

#include <fmt/core.h>

#include <set>

#include "clusters/build.h"
#include "clusters/device.h"
#include "clusters/limits.h"
#include "clusters/links.h"

namespace orrery::clusters {

using base::Cursor;
using base::UnitKind;

namespace {

BytesPerSecond rate(const Cursor& at) {
  return BytesPerSecond{at.quantity(UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1)};
}
Seconds delay(const Cursor& at) {
  return Seconds{at.exists() ? at.quantity(UnitKind::seconds, 0, kMostSeconds, 0) : 0};
}
int count(const Cursor& at, int low, int fallback, int high = kMostSwitches) {
  return at.exists() ? static_cast<int>(at.integer(low, high, fallback)) : fallback;
}

/// One [a, b] or [a, b, links] of a mesh; faults point at the number that is wrong.
std::optional<MeshEdge> read_edge(const Cursor& at, int devices, std::set<std::pair<int, int>>& seen) {
  const std::vector<Cursor> parts = at.items();
  if (parts.size() != 2 && parts.size() != 3) {
    at.error("C04", fmt::format("an edge has {} numbers", parts.size()),
             "write [device, device] or [device, device, links]");
    return std::nullopt;
  }
  MeshEdge edge;
  int* const ends[2] = {&edge.a, &edge.b};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto end = parts[i].integer(0, kMostParts, -1);
    if (end < 0) return std::nullopt;
    if (end >= devices) {
      parts[i].error("C02",
                     fmt::format("the link leads to device {}, but a node has devices 0 to {}", end, devices - 1));
      return std::nullopt;
    }
    *ends[i] = static_cast<int>(end);
  }
  if (parts.size() == 3) edge.links = count(parts[2], 1, 1, kMostParts);
  if (edge.a == edge.b) {
    at.error("C04", fmt::format("device {} is linked to itself", edge.a));
    return std::nullopt;
  }
  if (edge.a > edge.b) std::swap(edge.a, edge.b);
  if (!seen.insert({edge.a, edge.b}).second) {
    at.error("C03", fmt::format("devices {} and {} are linked twice", edge.a, edge.b),
             "give the number of links as third number");
    return std::nullopt;
  }
  return edge;
}

void read_mesh(const Cursor& at, int devices, NodeShape& node) {
  std::set<std::pair<int, int>> seen;
  std::vector<bool> linked(static_cast<std::size_t>(devices), devices == 1);
  const Cursor edges = at.at("edges");
  if (!edges.exists()) return;
  for (const Cursor& item : edges.items()) {
    const std::optional<MeshEdge> edge = read_edge(item, devices, seen);
    if (!edge) continue;
    node.edges.push_back(*edge);
    linked[static_cast<std::size_t>(edge->a)] = linked[static_cast<std::size_t>(edge->b)] = true;
  }
  for (std::size_t d = 0; d < linked.size(); ++d) {
    if (!linked[d]) edges.error("C05", fmt::format("device {} has no link in the mesh", d), "give it an edge");
  }
}

void read_node_fabric(const Cursor& at, int devices, NodeShape& node) {
  if (!at.exists()) return;
  node.fabric = static_cast<NodeFabric>(at.at("kind").choice({"nvswitch", "mesh", "shared-memory"}));
  node.latency = delay(at.at("latency"));
  if (node.fabric == NodeFabric::shared_memory) {
    node.link_bandwidth = rate(at.at("bandwidth"));
    return;
  }
  node.link_bandwidth = rate(at.at("link_bandwidth"));
  if (node.fabric == NodeFabric::mesh) {
    read_mesh(at, devices, node);
    return;
  }
  node.links = count(at.at("links"), 1, 1, kMostParts);
  node.boards = count(at.optional("boards"), 1, 1);
  if (node.boards > 1) node.trunk = rate(at.at("trunk"));
  const Cursor multicast = at.optional("multicast");
  node.multicast = multicast.exists() && multicast.boolean();
}

void read_host(const Cursor& at, NodeShape& node) {
  if (!at.exists()) return;
  const Cursor cpu = at.optional("cpu");
  if (cpu.exists()) node.cpu = static_cast<CpuVendor>(cpu.choice({"intel", "amd", "other"}, 2));
  node.sockets = count(at.optional("sockets"), 1, 1);
  if (node.sockets > 1) {
    node.socket_bandwidth = rate(at.at("link_bandwidth"));
    node.socket_latency = delay(at.optional("latency"));
  }
  node.host_memory_bandwidth = rate(at.at("memory_bandwidth"));
}

void read_attachments(const Cursor& at, NodeShape& node) {
  const Cursor pcie = at.optional("pcie");
  if (pcie.exists()) {
    node.pcie_switches = count(pcie.at("switches"), 0, 1);
    node.pcie_bandwidth = rate(pcie.at("bandwidth"));
    node.pcie_latency = delay(pcie.at("latency"));
  }
  const Cursor nics = at.optional("nics");
  if (!nics.exists()) return;
  node.nics = count(nics.at("count"), 0, 1);
  node.nic_bandwidth = rate(nics.at("bandwidth"));
  node.nic_latency = delay(nics.at("latency"));
  const bool reached = node.pcie_switches > 0 || (pcie.exists() && node.fabric == NodeFabric::shared_memory);
  if (node.nics > 0 && !reached) {
    nics.error("C05", "the NICs are connected to no device",
               "give 'pcie', with at least one switch where devices are GPUs");
  }
}

void read_node(const Cursor& at, int& devices, NodeShape& node) {
  if (!at.exists()) return;
  devices = count(at.at("devices"), 1, 1, kMostParts);
  read_node_fabric(at.at("fabric"), devices, node);
  read_host(at.at("host"), node);
  read_attachments(at, node);
  if (node.boards > devices || devices % node.boards != 0) {
    at.at("fabric").at("boards").error(
        "C04", fmt::format("{} devices do not spread evenly over {} boards", devices, node.boards));
    node.boards = 1;
  }
}

void read_network(const Cursor& at, NetworkShape& network) {
  network.kind = at.at("kind").choice({"infiniband", "roce"}) == 0 ? "infiniband" : "roce";
  const Cursor rails = at.optional("rails");
  network.rails = rails.exists() && rails.boolean();
  const Cursor leaf_nodes = at.optional("leaf_nodes");
  if (leaf_nodes.exists()) network.leaf_nodes = static_cast<int>(leaf_nodes.integer(1, kMostDevices, 1));
  const Cursor pod_nodes = at.optional("pod_nodes");
  if (pod_nodes.exists()) network.pod_nodes = static_cast<int>(pod_nodes.integer(1, kMostDevices, 1));
  if (network.pod_nodes > 0 && (network.leaf_nodes == 0 || network.pod_nodes % network.leaf_nodes != 0)) {
    pod_nodes.error("C04", fmt::format("a pod of {} nodes does not divide into leaves of {}", network.pod_nodes,
                                       network.leaf_nodes));
    network.pod_nodes = 0;
  }
  constexpr double kMostOversubscription = 1000;
  const Cursor over = at.optional("oversubscription");
  if (over.exists()) network.oversubscription = over.number(1, kMostOversubscription, 1);
  const Cursor core = at.optional("core_oversubscription");
  if (core.exists()) network.core_oversubscription = core.number(1, kMostOversubscription, 1);
  network.hop_latency = delay(at.optional("hop_latency"));
}

Cluster read_brief(const Cursor& at, const Find& find) {
  Cluster cluster;
  cluster.devices = {resolve_device(at.at("device"), find)};
  Shape shape;
  read_node(at.at("node"), cluster.devices_per_node, shape.node);
  const Cursor nodes = at.optional("nodes");
  cluster.nodes = nodes.exists() ? static_cast<int>(nodes.integer(1, kMostDevices / cluster.devices_per_node, 1)) : 1;
  const Cursor fabric = at.optional("fabric");
  if (fabric.exists()) read_network(fabric, shape.network);
  if (cluster.nodes > 1 && !fabric.exists()) {
    nodes.error("C05", fmt::format("nothing connects the {} nodes", cluster.nodes),
                "give 'fabric', the network above the NICs");
  }
  if (cluster.nodes > 1 && shape.node.nics == 0) {
    nodes.error("C05", fmt::format("nothing connects the {} nodes: a node has no NICs", cluster.nodes),
                "give 'nics' in 'node'");
  }
  if (vertices_of(shape.node, cluster.nodes, cluster.devices_per_node) > kMostVertices) {
    nodes.error("C11", fmt::format("{} nodes make a larger graph than Orrery builds", cluster.nodes),
                fmt::format("it builds graphs of up to {:.0f} vertices", kMostVertices));
  }
  cluster.shape = std::move(shape);
  return cluster;
}

/// `like: NAME` takes everything but what stands beside it.
Cluster read_like(const Cursor& at, const Find& find) {
  const Cursor like = at.at("like");
  const std::string name = like.text();
  const std::optional<std::string> text = find ? find(name) : std::nullopt;
  if (!text) {
    like.error("C01", fmt::format("cluster '{}' is not in the catalogue", name));
    return {};
  }
  // A chain of `like` is refused, so that a file that names itself ends.
  const Find devices_only = [&](const std::string& wanted) {
    return wanted.starts_with("devices/") ? find(wanted) : std::nullopt;
  };
  base::Result<Cluster> other = parse_cluster(*text, name + ".yaml", devices_only);
  const Cursor nodes = at.at("nodes");
  const auto wanted = nodes.integer(1, kMostDevices, 1);
  if (other)
    other = resized(*other, static_cast<int>(std::min<std::int64_t>(wanted, kMostDevices)) * other->devices_per_node);
  if (other) return std::move(*other);
  for (const base::Diagnostic& d : other.error())
    like.error(d.code, fmt::format("in '{}': {}", name, d.message), d.help);
  return {};
}

}  // namespace

Cluster read_cluster(const Cursor& at, const Find& find) {
  const bool by_link = at.has("vertices"), like = at.has("like");
  Cluster cluster = like ? read_like(at, find) : by_link ? read_links(at, find) : read_brief(at, find);
  cluster.name = at.at("name").text(cluster.name);
  const Cursor stack = at.optional("stack");
  if (stack.exists()) cluster.stack = stack.text();
  const std::vector<std::string> sources = read_sources(at.optional("sources"));
  if (!sources.empty()) cluster.sources = sources;
  if (cluster.devices.empty()) cluster.devices.emplace_back();
  // What is wrong has been said; a graph of it is not wanted.
  if (at.findings().failed()) return cluster;
  if (cluster.shape && !like) build(cluster);
  if (!cluster.shape) summarize(cluster);
  cluster.text = write_cluster(cluster);
  return cluster;
}

base::Result<Cluster> parse_cluster(std::string_view text, std::string file, const Find& find) {
  return base::read_document<Cluster>(
      text, std::move(file),
      std::function<Cluster(const Cursor&)>([&](const Cursor& at) { return read_cluster(at, find); }));
}

}  // namespace orrery::clusters
