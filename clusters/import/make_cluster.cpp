// The cluster of a machine: one shape for all nodes and a regular network, or a graph link by link.
#include <fmt/format.h>

#include <algorithm>

#include "clusters/build.h"
#include "clusters/import/machine.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

class ClusterMaker {
 public:
  ClusterMaker(Machine& machine, const ImportContext& context, Cluster& cluster)
      : m_(machine), options_(context.options), known_(context.known), findings_(context.findings), cluster_(cluster) {}

  bool conclude() {
    Cluster& cluster = cluster_;
    cluster.name = options_.name;
    cluster.devices = {m_.device};
    cluster.nodes = m_.count;
    cluster.sources = m_.evidence.sources;
    std::string why;
    Shape shape;
    if (!node_shape(shape.node, why)) {
      if (findings_.failed()) return false;
      return odd(why);
    }
    if (m_.evidence.fabric) {
      const auto regular = regular_fabric(*m_.evidence.fabric, m_.hosts, why);
      if (!regular) return odd(why);
      shape.network = regular->network;
      if (shape.node.nic_bandwidth.value != regular->nic_bandwidth && options_.nic_bandwidth.value == 0) {
        findings_.warn(m_.evidence.fabric->where, "NICs and cables differ in speed; the cables' speed is used");
        shape.node.nic_bandwidth = BytesPerSecond{regular->nic_bandwidth};
      }
    } else if (m_.count > 1) {
      findings_.warn(m_.nodes.front().where,
                     "no dump describes the network between the nodes; assumed: one switch without oversubscription",
                     "add the output of ibnetdiscover");
    }
    shape.network.kind = infiniband() ? "infiniband" : "roce";
    shape.network.hop_latency = known_.hop_latency;
    cluster.shape = std::move(shape);
    add_assumptions();
    if (vertices_of(cluster.shape->node, m_.count, cluster.devices_per_node) > kMostVertices ||
        cluster.size() > kMostDevices)
      return findings_.error("C11", {}, fmt::format("{} nodes make a larger graph than Orrery builds", m_.count));
    build(cluster);
    return true;
  }

 private:
  [[nodiscard]] bool infiniband() const {
    return m_.nodes.empty() || m_.nodes.front().nics.empty() || m_.nodes.front().nics.front().infiniband;
  }

  void add_assumptions() {
    assumptions_.push_back(
        "assumed: latencies of NVLink, PCIe, sockets, NICs and switches as in Orrery's clusters/import/known.yaml");
    cluster_.sources.insert(cluster_.sources.end(), assumptions_.begin(), assumptions_.end());
  }

  /// The shape that all nodes share; false with `why`, or after an error.
  bool node_shape(NodeShape& shape, std::string& why) {
    if (m_.catalogue_node) {
      shape = m_.catalogue_node->shape->node;
      cluster_.devices_per_node = m_.catalogue_node->devices_per_node;
      cluster_.sources.insert(cluster_.sources.end(), m_.catalogue_node->sources.begin(),
                              m_.catalogue_node->sources.end());
      return true;
    }
    cluster_.devices_per_node = static_cast<int>(m_.nodes.front().gpus.size());
    bool regular = true;
    for (std::size_t i = 0; i < m_.nodes.size(); ++i) {
      FoundNode& node = m_.nodes[i];
      Assumptions assumptions;
      auto figures = figures_of(node, m_.device, m_.device_name, known_, assumptions);
      if (!figures) return findings_.pass_on(figures.error());
      find_switches(node, *figures);
      figures_.push_back(*figures);
      if (i == 0) assumptions_ = std::move(assumptions);
      if (node.gpus.size() != m_.nodes.front().gpus.size())
        return findings_.error(
            "E0310", node.where,
            fmt::format("this host has {} GPUs, the first one {}", node.gpus.size(), m_.nodes.front().gpus.size()),
            "all nodes of a cluster have the same number");
      FoundNode sorted = node;
      const auto one = regular_node(sorted, *figures, known_, why);
      if (!one) {
        regular = false;
        continue;
      }
      if (m_.hosts.empty()) node.nics = sorted.nics;  // keep the dump's order of NICs if ports must be matched to them
      if (i == 0) shape = *one;
      if (i > 0 && !(*one == shape)) {
        why = "hosts differ";
        regular = false;
      }
    }
    if (regular && m_.nodes.size() > 1 && m_.nodes.front().far_switch) {
      why = "NVSwitches may join several hosts";
      regular = false;
    }
    return regular;
  }

  /// Builds the link-by-link form, with a warning that says why.
  bool odd(const std::string& why) {
    if (m_.catalogue_node)
      return findings_.error(
          "E0310", m_.evidence.fabric->where,
          fmt::format("the fabric has no regular shape ({}), and --node gives only regular nodes", why),
          "give a dump of the node");
    findings_.warn(m_.nodes.front().where, fmt::format("written link by link: {}", why));
    Cluster& cluster = cluster_;
    add_assumptions();
    if (static_cast<double>(m_.count) * static_cast<double>(m_.nodes.front().gpus.size()) > kMostDevices)
      return findings_.error("C11", m_.nodes.front().where,
                             fmt::format("{} nodes make a larger graph than Orrery builds", m_.count));
    std::optional<Graph::vertex_descriptor> far;
    if (m_.nodes.size() > 1 &&
        std::any_of(m_.nodes.begin(), m_.nodes.end(), [](const FoundNode& n) { return n.far_switch; })) {
      Vertex vertex;
      vertex.kind = VertexKind::nvswitch;
      vertex.name = "nvswitch";
      far = boost::add_vertex(std::move(vertex), cluster.graph.edit());
    }
    std::vector<std::vector<Graph::vertex_descriptor>> nics;
    for (int n = 0; n < m_.count; ++n) {
      const std::size_t from = std::min(static_cast<std::size_t>(n), m_.nodes.size() - 1);
      const std::string name = m_.hosts.empty() ? fmt::format("node{}", n) : m_.hosts[static_cast<std::size_t>(n)].name;
      nics.push_back(add_node(cluster.graph.edit(), m_.nodes[from], figures_[from], known_, n, name, far));
    }
    if (m_.evidence.fabric) {
      add_cables(cluster.graph.edit(), *m_.evidence.fabric, m_.hosts, nics, known_);
    } else if (m_.count > 1) {
      findings_.warn(m_.nodes.front().where,
                     "no dump describes the network between the nodes; assumed: one switch without oversubscription",
                     "add the output of ibnetdiscover");
      add_leaf(cluster.graph.edit(), m_.nodes, nics, known_);
    }
    return true;
  }

  Machine& m_;
  const ImportOptions& options_;
  const Known& known_;
  ImportFindings& findings_;
  Cluster& cluster_;
  std::vector<NodeFigures> figures_;
  Assumptions assumptions_;
};

}  // namespace

bool make_cluster(Machine& machine, const ImportContext& context, Cluster& cluster) {
  return ClusterMaker(machine, context, cluster).conclude();
}

}  // namespace orrery::clusters
