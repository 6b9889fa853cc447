/// Writes a cluster as self-contained YAML: the brief form if it has a shape, otherwise link by link.
#include <fmt/format.h>

#include "clusters/device.h"
#include "clusters/read.h"

namespace orrery::clusters {

using base::quantity_text;
using base::UnitKind;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

namespace {

/// Writes indented lines of the form `key: value`.
class ClusterWriter {
 public:
  explicit ClusterWriter(int indent) : indent_(indent) {}
  void open(const std::string& key) {
    line(key + ":");
    indent_ += 2;
  }
  void close() { indent_ -= 2; }
  void line(const std::string& text) { text_ += std::string(static_cast<std::size_t>(indent_), ' ') + text + "\n"; }
  void text(const std::string& key, const std::string& value) { line(key + ": " + quoted(value)); }
  void word(const std::string& key, const std::string& value) { line(key + ": " + value); }
  void count(const std::string& key, int value) { line(fmt::format("{}: {}", key, value)); }
  void number(const std::string& key, double value) { line(fmt::format("{}: {}", key, value)); }
  void flag(const std::string& key, bool value) { line(key + (value ? ": true" : ": false")); }
  void quantity(const std::string& key, double value, UnitKind kind) { line(key + ": " + quantity_text(value, kind)); }
  void rate(const std::string& key, BytesPerSecond value) { quantity(key, value.value, UnitKind::bytes_per_second); }
  void delay(const std::string& key, Seconds value) { quantity(key, value.value, UnitKind::seconds); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    if (values.empty()) return;
    open(key);
    for (const std::string& value : values) line("- " + quoted(value));
    close();
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  int indent_;
  std::string text_;
};

void write_device(ClusterWriter& out, const Device& device) {
  out.open("device");
  out.text("name", device.name);
  out.word("kind", name_of(device.kind));
  out.word("architecture", name_of(device.architecture));
  out.open("peak");
  for (const auto& [dtype, peak] : device.peak) out.quantity(dtype, peak.value, UnitKind::flops_per_second);
  out.close();
  out.quantity("vector_peak", device.vector_peak.value, UnitKind::flops_per_second);
  out.quantity("memory", device.memory.value, UnitKind::bytes);
  out.rate("memory_bandwidth", device.memory_bandwidth);
  out.quantity("cache", device.cache.value, UnitKind::bytes);
  out.count("multiprocessors", device.multiprocessors);
  out.quantity("power", device.power.value, UnitKind::watts);
  if (device.idle_power.value > 0) out.quantity("idle_power", device.idle_power.value, UnitKind::watts);
  out.quantity("price", device.price.value, UnitKind::dollars_per_hour);
  out.texts("sources", device.sources);
  out.close();
}

void write_node_fabric(ClusterWriter& out, const NodeShape& node) {
  static const char* const kKinds[] = {"nvswitch", "mesh", "shared-memory", "pcie", "torus"};
  out.open("fabric");
  out.word("kind", kKinds[static_cast<int>(node.fabric)]);
  if (node.fabric == NodeFabric::none) {
    out.close();
    return;
  }
  if (!node.link_name.empty()) out.text("name", node.link_name);
  if (node.link_efficiency > 0) out.number("efficiency", node.link_efficiency);
  out.delay("latency", node.latency);
  out.rate(node.fabric == NodeFabric::shared_memory ? "bandwidth" : "link_bandwidth", node.link_bandwidth);
  if (node.fabric == NodeFabric::nvswitch) {
    out.count("links", node.links);
    if (node.boards > 1) {
      out.count("boards", node.boards);
      out.rate("trunk", node.trunk);
    }
    out.flag("multicast", node.multicast);
  }
  if (node.fabric == NodeFabric::torus) out.word("block", fmt::format("[{}]", fmt::join(node.block, ", ")));
  if (node.fabric == NodeFabric::mesh) {
    std::string edges;
    for (const MeshEdge& e : node.edges)
      edges += fmt::format("{}[{}, {}, {}]", edges.empty() ? "" : ", ", e.a, e.b, e.links);
    out.word("edges", "[" + edges + "]");
  }
  out.close();
}

void write_node(ClusterWriter& out, const Cluster& cluster, const NodeShape& node) {
  static const char* const kVendors[] = {"intel", "amd", "other"};
  out.open("node");
  out.count("devices", cluster.devices_per_node);
  write_node_fabric(out, node);
  out.open("host");
  out.word("cpu", kVendors[static_cast<int>(node.cpu)]);
  out.count("sockets", node.sockets);
  if (node.sockets > 1) {
    out.rate("link_bandwidth", node.socket_bandwidth);
    out.delay("latency", node.socket_latency);
  }
  if (node.host_memory.value > 0) out.quantity("memory", node.host_memory.value, UnitKind::bytes);
  out.rate("memory_bandwidth", node.host_memory_bandwidth);
  out.delay("memory_latency", node.host_memory_latency);
  out.close();
  if (node.pcie_bandwidth.value > 0) {
    out.open("pcie");
    out.count("switches", node.pcie_switches);
    out.rate("bandwidth", node.pcie_bandwidth);
    out.delay("latency", node.pcie_latency);
    out.close();
  }
  if (node.nic_bandwidth.value > 0) {
    out.open("nics");
    out.count("count", node.nics);
    out.rate("bandwidth", node.nic_bandwidth);
    if (node.nic_exchange_bandwidth.value > 0) {  // as of one core that serves the port alone
      out.rate("core_rate", node.nic_bandwidth);
      out.rate("many_flows_rate", node.nic_exchange_bandwidth);
    }
    out.delay("latency", node.nic_latency);
    if (node.nics_at_cpu) out.word("at", "cpu");
    out.close();
  }
  if (node.frontend_bandwidth.value > 0) {
    out.open("frontend");
    out.count("count", node.frontend_nics);
    out.rate("bandwidth", node.frontend_bandwidth);
    out.delay("latency", node.frontend_latency);
    out.close();
  }
  if (node.nvme_capacity.value > 0) {
    out.open("nvme");
    out.count("count", node.nvme);
    out.quantity("capacity", node.nvme_capacity.value, UnitKind::bytes);
    out.rate("read", node.nvme_read);
    out.rate("write", node.nvme_write);
    out.delay("latency", node.nvme_latency);
    out.close();
  }
  out.close();
}

void write_network(ClusterWriter& out, const NetworkShape& network) {
  out.open("fabric");
  out.word("kind", network.kind);
  if (network.kind == "torus") {
    out.word("dims", fmt::format("[{}]", fmt::join(network.torus, ", ")));
    out.close();
    return;
  }
  out.flag("staged", network.staged);
  out.delay("message_latency", network.message_latency);
  out.flag("rails", network.rails);
  if (network.leaf_nodes > 0) out.count("leaf_nodes", network.leaf_nodes);
  if (network.pod_nodes > 0) out.count("pod_nodes", network.pod_nodes);
  out.number("oversubscription", network.oversubscription);
  out.number("core_oversubscription", network.core_oversubscription);
  out.delay("hop_latency", network.hop_latency);
  out.close();
}

void write_power(ClusterWriter& out, const NodePower& power) {
  if (power == NodePower{}) return;
  out.open("power");
  out.quantity("host", power.host.value, UnitKind::watts);
  out.quantity("network", power.network.value, UnitKind::watts);
  out.number("pue", power.pue);
  out.close();
}

void write_links(ClusterWriter& out, const Graph& graph) {
  out.open("vertices");
  const auto vertices = boost::vertices(graph);
  for (auto v = vertices.first; v != vertices.second; ++v) {
    const Vertex& vertex = graph[*v];
    const std::string node = vertex.node >= 0 ? fmt::format(", node: {}", vertex.node) : "";
    const std::string capacity =
        vertex.capacity.value > 0 ? ", capacity: " + quantity_text(vertex.capacity.value, UnitKind::bytes) : "";
    out.line(fmt::format("- {{name: {}, kind: {}{}{}}}", quoted(vertex.name), name_of(vertex.kind), node, capacity));
  }
  out.close();
  out.open("links");
  const auto edges = boost::edges(graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const Link& link = graph[*e];
    out.line(fmt::format("- {{from: {}, to: {}, kind: {}, bandwidth: {}, latency: {}}}",
                         quoted(graph[boost::source(*e, graph)].name), quoted(graph[boost::target(*e, graph)].name),
                         name_of(link.kind), quantity_text(link.bandwidth.value, UnitKind::bytes_per_second),
                         quantity_text(link.latency.value, UnitKind::seconds)));
  }
  out.close();
}

}  // namespace

std::string write_cluster(const Cluster& cluster, int indent) {
  ClusterWriter out(indent);
  out.text("name", cluster.name);
  write_device(out, cluster.device());
  if (cluster.shape) {
    write_node(out, cluster, cluster.shape->node);
    // Without a network, a reader refuses more than one node.
    if (cluster.nodes > 1 || cluster.shape->network != NetworkShape{}) write_network(out, cluster.shape->network);
    out.count("nodes", cluster.nodes);
  } else {
    write_links(out, *cluster.graph);
  }
  write_power(out, cluster.power);
  if (!cluster.stack.empty()) out.text("stack", cluster.stack);
  out.texts("sources", cluster.sources);
  return out.take();
}

}  // namespace orrery::clusters
