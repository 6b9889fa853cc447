/// Reads `node`: its fabric, host, PCIe, NICs, front end and drives.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "clusters/read_parts.h"

namespace orrery::clusters {

using base::Cursor;
using base::UnitKind;

BytesPerSecond read_rate(const Cursor& at) {
  return BytesPerSecond{at.quantity(UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1)};
}
Seconds read_delay(const Cursor& at) {
  return Seconds{at.exists() ? at.quantity(UnitKind::seconds, 0, kMostSeconds, 0) : 0};
}
int read_count(const Cursor& at, int low, int fallback, int high) {
  return at.exists() ? static_cast<int>(at.integer(low, high, fallback)) : fallback;
}

namespace {

/// Reads one [a, b] or [a, b, links] of a mesh; errors point at the wrong number.
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
                     fmt::format("the link leads to device {}, but a node has devices 0 to {}", end, devices - 1),
                     "correct the number, or 'devices' in 'node'");
      return std::nullopt;
    }
    *ends[i] = static_cast<int>(end);
  }
  if (parts.size() == 3) edge.links = read_count(parts[2], 1, 1, kMostParts);
  if (edge.a == edge.b) {
    at.error("C04", fmt::format("device {} is linked to itself", edge.a), "name two devices");
    return std::nullopt;
  }
  if (edge.a > edge.b) std::swap(edge.a, edge.b);
  if (!seen.insert({edge.a, edge.b}).second) {
    at.error("C03", fmt::format("devices {} and {} are linked twice", edge.a, edge.b),
             "give the number of links as the third number");
    return std::nullopt;
  }
  return edge;
}

void read_mesh(const Cursor& at, int devices, NodeShape& node) {
  std::set<std::pair<int, int>> seen;
  const Cursor edges = at.at("edges");
  if (!edges.exists()) return;
  for (const Cursor& item : edges.items()) {
    const std::optional<MeshEdge> edge = read_edge(item, devices, seen);
    if (edge) node.edges.push_back(*edge);
  }
}

/// Connects every device to every other.
void fill_mesh(const Cursor& at, int devices, NodeShape& node) {
  const int links = read_count(at.optional("links"), 1, 1, kMostParts);
  if (devices > kMostMesh) {
    at.error("C04", fmt::format("a full mesh of {} devices", devices), fmt::format("at most {}", kMostMesh));
    return;
  }
  for (int a = 0; a < devices; ++a) {
    for (int b = a + 1; b < devices; ++b) node.edges.push_back({a, b, links});
  }
}

void read_switches(const Cursor& at, NodeShape& node) {
  node.links = read_count(at.at("links"), 1, 1, kMostParts);
  node.boards = read_count(at.optional("boards"), 1, 1);
  if (node.boards > 1) node.trunk = read_rate(at.at("trunk"));
  const Cursor multicast = at.optional("multicast");
  node.multicast = multicast.exists() && multicast.boolean();
}

void read_node_fabric(const Cursor& at, int devices, NodeShape& node) {
  enum { nvswitch, mesh, shared_memory, full_mesh, torus, pcie };
  const Cursor word = at.at("kind");
  const int kind =
      word.exists() ? word.choice({"nvswitch", "mesh", "shared-memory", "full-mesh", "torus", "pcie"}, -1) : -1;
  if (kind < 0) {
    at.ignore();  // which keys belong here depends on the kind
    return;
  }
  constexpr NodeFabric kFabrics[] = {NodeFabric::nvswitch, NodeFabric::mesh,  NodeFabric::shared_memory,
                                     NodeFabric::mesh,     NodeFabric::torus, NodeFabric::none};
  node.fabric = kFabrics[kind];
  if (kind == pcie) return;
  node.latency = Seconds{at.at("latency").quantity(UnitKind::seconds, 0, kMostSeconds, 0)};
  const Cursor name = at.optional("name");
  if (name.exists()) node.link_name = name.text();
  if (kind == shared_memory) {
    node.link_bandwidth = read_rate(at.at("bandwidth"));
    return;
  }
  node.link_bandwidth = read_rate(at.at("link_bandwidth"));
  const Cursor efficiency = at.optional("efficiency");
  if (efficiency.exists()) node.link_efficiency = efficiency.number(kLeastEfficiency, 1, 1);
  if (kind == nvswitch) read_switches(at, node);
  if (kind == mesh) read_mesh(at, devices, node);
  if (kind == full_mesh) fill_mesh(at, devices, node);
  if (kind == torus) {
    for (const Cursor& extent : at.at("block").items())
      node.block.push_back(static_cast<int>(extent.integer(1, kMostParts, 1)));
  }
}

void read_host(const Cursor& at, NodeShape& node) {
  const Cursor cpu = at.optional("cpu");
  if (cpu.exists()) node.cpu = static_cast<CpuVendor>(cpu.choice({"intel", "amd", "other"}, 2));
  node.sockets = read_count(at.optional("sockets"), 1, 1);
  if (node.sockets > 1) {
    node.socket_bandwidth = read_rate(at.at("link_bandwidth"));
    node.socket_latency = read_delay(at.optional("latency"));
  }
  const Cursor memory = at.optional("memory");
  if (memory.exists()) node.host_memory = Bytes{memory.quantity(UnitKind::bytes, kLeastBytes, kMostBytes, 1)};
  node.host_memory_bandwidth = read_rate(at.at("memory_bandwidth"));
  node.host_memory_latency = read_delay(at.optional("memory_latency"));
}

void read_nics(const Cursor& at, NodeShape& node) {
  node.nics = read_count(at.at("count"), 0, 1);
  node.nic_bandwidth = read_rate(at.at("bandwidth"));
  node.nic_latency = read_delay(at.at("latency"));
  // If host cores run the protocol, a port delivers no more than the cores that serve it can process.
  const Cursor core_rate = at.optional("core_rate"), cores = at.optional("cores");
  if (core_rate.exists()) {
    const BytesPerSecond served = read_rate(core_rate) * read_count(cores, 1, 1);
    node.nic_bandwidth = std::min(node.nic_bandwidth, served);
  } else if (cores.exists()) {
    cores.error("C04", "'cores' without the rate that one of them reaches through the protocol", "core_rate: 42 Gb/s");
  }
  const Cursor place = at.optional("at");
  node.nics_at_cpu = place.exists() && place.choice({"pcie", "cpu"}) == 1;
}

void read_nvme(const Cursor& at, NodeShape& node) {
  node.nvme = read_count(at.at("count"), 0, 1);
  node.nvme_capacity = Bytes{at.at("capacity").quantity(UnitKind::bytes, kLeastBytes, kMostBytes, 1)};
  node.nvme_read = read_rate(at.at("read"));
  node.nvme_write = read_rate(at.at("write"));
  node.nvme_latency = read_delay(at.at("latency"));
}

}  // namespace

void read_node(const Cursor& at, bool fresh, int& devices, NodeShape& node) {
  if (!at.exists()) return;
  const auto part = [&](const char* key, bool needed) { return fresh && needed ? at.at(key) : at.optional(key); };
  const Cursor count = part("devices", true);
  devices = read_count(count, 1, devices, kMostParts);
  if (const Cursor fabric = part("fabric", true); fabric.exists()) {
    node.links = node.boards = 1;
    node.edges.clear();
    node.block.clear();
    node.multicast = false;
    node.link_name.clear();
    node.link_efficiency = 0;
    read_node_fabric(fabric, devices, node);
  }
  if (const Cursor host = part("host", true); host.exists()) read_host(host, node);
  if (const Cursor pcie = at.optional("pcie"); pcie.exists()) {
    node.pcie_switches = read_count(pcie.optional("switches"), 0, 0);
    node.pcie_bandwidth = read_rate(pcie.at("bandwidth"));
    node.pcie_latency = read_delay(pcie.at("latency"));
  }
  if (const Cursor nics = at.optional("nics"); nics.exists()) read_nics(nics, node);
  if (const Cursor nvme = at.optional("nvme"); nvme.exists()) read_nvme(nvme, node);
  if (const Cursor frontend = at.optional("frontend"); frontend.exists()) {
    node.frontend_nics = read_count(frontend.at("count"), 0, 1);
    node.frontend_bandwidth = read_rate(frontend.at("bandwidth"));
    node.frontend_latency = read_delay(frontend.at("latency"));
  }
}

}  // namespace orrery::clusters
