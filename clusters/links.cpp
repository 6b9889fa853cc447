/// Reads a cluster vertex by vertex and link by link, and checks that it is connected.
#include "clusters/links.h"

#include <fmt/core.h>

#include <boost/graph/connected_components.hpp>

#include "clusters/device.h"
#include "clusters/limits.h"

namespace orrery::clusters {

using base::Cursor;
using base::UnitKind;

namespace {

const std::vector<std::string> kVertexKinds = {"device", "nvswitch", "pcie-switch", "cpu",         "nic",
                                               "leaf",   "spine",    "core",        "host-memory", "nvme"};
const std::vector<std::string> kLinkKinds = {"nvlink", "pcie", "inter-socket", "network", "memory", "frontend"};

struct Reading {
  Cluster cluster;
  std::map<std::string, std::size_t> by_name;
  std::vector<Cursor> places;                     ///< by vertex
  std::vector<std::vector<std::size_t>> devices;  ///< vertices by node
};

void read_vertex(const Cursor& at, Reading& reading) {
  Vertex vertex;
  vertex.name = at.at("name").text();
  vertex.kind = static_cast<VertexKind>(at.at("kind").choice(kVertexKinds));
  const bool inside = vertex.kind == VertexKind::device;
  const Cursor node = inside ? at.at("node") : at.optional("node");
  if (node.exists()) vertex.node = static_cast<int>(node.integer(0, kMostDevices, 0));
  const bool place = vertex.kind == VertexKind::host_memory || vertex.kind == VertexKind::nvme;
  const Cursor capacity = place ? at.optional("capacity") : Cursor();
  if (capacity.exists()) vertex.capacity = Bytes{capacity.quantity(UnitKind::bytes, kLeastBytes, kMostBytes, 1)};
  const std::size_t id = boost::num_vertices(*reading.cluster.graph);
  if (!reading.by_name.emplace(vertex.name, id).second) {
    at.at("name").error("C03", fmt::format("two vertices are named '{}'", vertex.name), "give each its own name");
  }
  if (inside && vertex.node >= 0) {
    const auto n = static_cast<std::size_t>(vertex.node);
    if (reading.devices.size() <= n) reading.devices.resize(n + 1);
    reading.devices[n].push_back(id);
  }
  boost::add_vertex(std::move(vertex), reading.cluster.graph.edit());
  reading.places.push_back(at);
}

void read_link(const Cursor& at, Reading& reading) {
  std::optional<std::size_t> ends[2];
  const char* const keys[2] = {"from", "to"};
  for (int i = 0; i < 2; ++i) {
    const Cursor end = at.at(keys[i]);
    const std::string name = end.text();
    if (const auto found = reading.by_name.find(name); found != reading.by_name.end()) {
      ends[i] = found->second;
    } else if (end.exists()) {
      std::vector<std::string> names;
      for (const auto& [other, id] : reading.by_name) names.push_back(other);
      const std::string near = base::did_you_mean(name, names);
      end.error("C02", fmt::format("the link leads to '{}', which is not a vertex", name),
                near.empty() ? "add it to 'vertices'" : fmt::format("did you mean '{}'?", near));
    }
  }
  Link link;
  link.kind = static_cast<LinkKind>(at.at("kind").choice(kLinkKinds));
  link.bandwidth =
      BytesPerSecond{at.at("bandwidth").quantity(UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1)};
  link.latency = Seconds{at.at("latency").quantity(UnitKind::seconds, 0, kMostSeconds, 0)};
  if (!ends[0] || !ends[1]) return;
  if (*ends[0] == *ends[1]) {
    at.error("C04", "the link leads from a vertex to itself", "name two vertices");
    return;
  }
  boost::add_edge(*ends[0], *ends[1], link, reading.cluster.graph.edit());
}

/// Devices are numbered node by node, in file order within a node.
void number_devices(const Cursor& vertices, Reading& reading) {
  Cluster& cluster = reading.cluster;
  if (reading.devices.empty()) {
    vertices.error("C05", "no vertex is a device", "give at least one vertex of kind device");
    return;
  }
  cluster.nodes = static_cast<int>(reading.devices.size());
  cluster.devices_per_node = std::max(1, static_cast<int>(reading.devices[0].size()));
  for (std::size_t n = 0; n < reading.devices.size(); ++n) {
    if (reading.devices[n].size() != reading.devices[0].size()) {
      vertices.error("C06",
                     fmt::format("node {} has {} devices and node 0 has {}", n, reading.devices[n].size(),
                                 reading.devices[0].size()),
                     "nodes are numbered from 0 without a gap and have the same number of devices");
      return;
    }
    for (const std::size_t id : reading.devices[n]) {
      cluster.graph.edit()[id].device = static_cast<int>(cluster.device_vertices.size());
      cluster.device_vertices.push_back(id);
    }
  }
}

void check_connected(const Reading& reading) {
  const Cluster& cluster = reading.cluster;
  std::vector<int> component(boost::num_vertices(*cluster.graph));
  boost::connected_components(*cluster.graph, component.data());
  for (const std::size_t id : cluster.device_vertices) {
    if (component[id] == component[cluster.device_vertices.front()]) continue;
    reading.places[id].error("C05",
                             fmt::format("device '{}' is not connected to device '{}'", (*cluster.graph)[id].name,
                                         (*cluster.graph)[cluster.device_vertices.front()].name),
                             "add a link");
  }
}

}  // namespace

Cluster read_links(const Cursor& at, const Find& find) {
  Reading reading;
  reading.cluster.devices = {resolve_device(at.at("device"), find)};
  const Cursor vertices = at.at("vertices");
  for (const Cursor& item : vertices.items()) read_vertex(item, reading);
  number_devices(vertices, reading);
  const Cursor links = at.at("links");
  if (links.exists()) {
    for (const Cursor& item : links.items()) read_link(item, reading);
  }
  // After a refused link or vertex, its neighbours would seem disconnected.
  if (!at.findings().failed()) check_connected(reading);
  const auto all = boost::vertices(*reading.cluster.graph);
  for (auto v = all.first; v != all.second; ++v) {
    const Vertex& vertex = (*reading.cluster.graph)[*v];
    if (vertex.kind == VertexKind::nic && vertex.node == 0) ++reading.cluster.nics_per_node;
  }
  return std::move(reading.cluster);
}

}  // namespace orrery::clusters
