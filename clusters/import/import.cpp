/// Combines the dumps of one machine.
#include "clusters/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "clusters/build.h"
#include "clusters/device.h"
#include "clusters/import/evidence.h"
#include "clusters/import/fabric.h"
#include "clusters/import/node.h"
#include "clusters/import/xml.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

/// Matches `name` against a pattern in which * stands for any run of characters.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t i = star; i <= name.size(); ++i)
    if (matches(rest, name.substr(i))) return true;
  return false;
}

class Importer {
 public:
  Importer(const std::vector<Dump>& dumps, const ImportOptions& options, const Known& known, const Find& find)
      : dumps_(dumps), options_(options), known_(known), find_(find) {}

  base::Result<Imported> run() {
    evidence_ = read_evidence(dumps_);
    found_ = std::move(evidence_.found);
    if (evidence_.failed) return base::fail(std::move(found_));
    if (!(choose_node() && choose_device() && choose_hosts() && settle_nics() && settle_count()))
      return base::fail(std::move(found_));
    if (!(conclude() && verify())) return base::fail(std::move(found_));
    out_.notes = std::move(found_);
    return std::move(out_);
  }

 private:
  // ---- findings

  bool error(const char* code, base::Location where, std::string message, std::string help = {}) {
    found_.push_back({base::Severity::error, code, std::move(where), std::move(message), std::move(help), {}});
    failed_ = true;
    return false;
  }
  void warn(base::Location where, std::string message, std::string help = {}) {
    found_.push_back({base::Severity::warning, "E0312", std::move(where), std::move(message), std::move(help), {}});
  }
  bool pass_on(const base::Diagnostics& all) {
    found_.insert(found_.end(), all.begin(), all.end());
    failed_ = true;
    return false;
  }

  // ---- the node

  /// Takes the node from NCCL's dump, else the matrix, else hwloc: the most detailed first. The others fill its gaps.
  bool choose_node() {
    if (!evidence_.nodes.empty()) {
      nodes_ = std::move(evidence_.nodes);
    } else if (evidence_.matrix) {
      nodes_ = {std::move(*evidence_.matrix)};
      evidence_.matrix.reset();
    } else if (evidence_.tree) {
      nodes_ = {std::move(*evidence_.tree)};
      evidence_.tree.reset();
    } else {
      return take_catalogue_node();
    }
    if (!options_.node.empty())
      return error("E0310", nodes_.front().where, "the dump describes a node, and --node names another",
                   "leave --node out");
    for (FoundNode& node : nodes_) {
      if (evidence_.matrix && !complete(node, *evidence_.matrix)) return false;
      if (evidence_.tree && !complete(node, *evidence_.tree)) return false;
    }
    return true;
  }

  bool take_catalogue_node() {
    const base::Location where = evidence_.fabric ? evidence_.fabric->where : base::Location{};
    if (options_.node.empty())
      return error("E0311", where, "no dump describes a node, only the network between nodes",
                   "add a dump of one node, or name a cluster whose nodes they are: --node dgx-a100");
    const std::optional<std::string> text = find_ ? find_(options_.node) : std::nullopt;
    if (!text) return error("C01", {}, fmt::format("cluster '{}' is not in the catalogue", options_.node));
    auto cluster = parse_cluster(*text, options_.node + ".yaml", find_);
    if (!cluster) return pass_on(cluster.error());
    if (!cluster->shape || cluster->shape->node.nics == 0)
      return error("E0310", where, fmt::format("the nodes of {} have no NICs, or no regular shape", options_.node));
    catalogue_node_ = std::move(*cluster);
    return true;
  }

  bool complete(FoundNode& node, const FoundNode& other) {
    const base::Diagnostics wrong = fill(node, other);
    return wrong.empty() || pass_on(wrong);
  }

  bool choose_device() {
    if (catalogue_node_) {
      if (!options_.device.empty()) return load_device(options_.device);
      device_ = catalogue_node_->device();
      return true;
    }
    if (!options_.device.empty()) return load_device(options_.device);
    for (const FoundNode& node : nodes_) {
      const auto name = identify(node, known_);
      if (!name) return pass_on(name.error());
      if (!device_name_.empty() && *name != device_name_)
        return error("E0309", node.where, fmt::format("this host has {} and others {}", *name, device_name_),
                     "a cluster has one kind of GPU");
      device_name_ = *name;
    }
    return load_device(device_name_);
  }

  bool load_device(const std::string& name) {
    device_name_ = name;
    const std::optional<std::string> text = find_ ? find_("devices/" + name) : std::nullopt;
    if (!text) {
      const base::Location where = nodes_.empty() ? base::Location{} : nodes_.front().gpus.front().where;
      return error("C01", where, fmt::format("device '{}' is not in the catalogue", name),
                   "write it as a file of clusters/catalog/devices, in a folder named by --catalog, or name another "
                   "with --device");
    }
    auto device = base::read_document<Device>(*text, "devices/" + name + ".yaml",
                                              std::function<Device(const base::Cursor&)>(read_device));
    if (!device) return pass_on(device.error());
    device_ = std::move(*device);
    return true;
  }

  // ---- the network

  bool choose_hosts() {
    if (!evidence_.fabric) return true;
    auto all = hosts_of(*evidence_.fabric);
    if (!all) return pass_on(all.error());
    for (Host& host : *all)
      if (options_.hosts.empty() || matches(options_.hosts, host.name)) hosts_.push_back(std::move(host));
    if (hosts_.empty())
      return error("E0310", evidence_.fabric->where,
                   options_.hosts.empty()
                       ? "no host is connected to this fabric"
                       : fmt::format("no host of this fabric is called {}", base::quoted(options_.hosts)));
    return true;
  }

  bool settle_nics() {
    for (FoundNode& node : nodes_) {
      const std::vector<std::string> dropped = drop_far_nics(node);
      if (!dropped.empty() && &node == &nodes_.front())
        warn(node.where,
             fmt::format("left out, because they share no PCIe switch with a GPU as others do: {}",
                         fmt::join(dropped, ", ")),
             "they serve storage and the front end");
      if (options_.nic_bandwidth.value > 0)
        for (FoundNic& nic : node.nics) nic.speed = options_.nic_bandwidth.value;
    }
    return !evidence_.fabric || match_ports();
  }

  /// Puts the ports of each host in the order of the node's NICs: by name if the names agree, otherwise by number.
  bool match_ports() {
    std::vector<std::string> names;
    if (!nodes_.empty())
      for (const FoundNic& nic : nodes_.front().nics) names.push_back(nic.name);
    const std::size_t wanted =
        catalogue_node_ ? static_cast<std::size_t>(catalogue_node_->shape->node.nics) : names.size();
    for (Host& host : hosts_) {
      std::vector<HostPort> ports;
      for (const std::string& name : names) {
        const auto port =
            std::find_if(host.ports.begin(), host.ports.end(), [&](const HostPort& p) { return p.adapter == name; });
        if (port != host.ports.end()) ports.push_back(*port);
      }
      if (ports.size() == wanted && wanted > 0) {
        host.ports = std::move(ports);
      } else if (host.ports.size() != wanted) {
        return error(
            "E0310", host.ports.front().where,
            fmt::format("{} has {} ports in the fabric, a node has {} NICs", host.name, host.ports.size(), wanted),
            "name the hosts to take with --hosts, such as --hosts 'dgx*'");
      }
    }
    for (FoundNode& node : nodes_)
      for (std::size_t i = 0; i < node.nics.size(); ++i) {
        const double cable = hosts_.front().ports[i].bandwidth;
        if (node.nics[i].speed == 0) node.nics[i].speed = cable;
        node.nics[i].infiniband = true;
      }
    return true;
  }

  bool settle_count() {
    const int said = !hosts_.empty()     ? static_cast<int>(hosts_.size())
                     : nodes_.size() > 1 ? static_cast<int>(nodes_.size())
                                         : 0;
    count_ = options_.nodes > 0 ? options_.nodes : std::max(1, said);
    const base::Location where = !hosts_.empty() ? evidence_.fabric->where : nodes_.front().where;
    if (said > 0 && count_ != said)
      return error("E0310", where, fmt::format("--nodes says {} nodes, the dumps have {}", count_, said),
                   "leave --nodes out, or name the hosts to take with --hosts");
    if (nodes_.size() > 1 && !hosts_.empty() && nodes_.size() != hosts_.size())
      return error("E0310", where,
                   fmt::format("the fused dump has {} hosts and the fabric {}", nodes_.size(), hosts_.size()));
    if (catalogue_node_) return true;
    for (FoundNode& node : nodes_) {
      const bool silent =
          std::any_of(node.nics.begin(), node.nics.end(), [](const FoundNic& nic) { return nic.speed == 0; });
      if (silent && count_ > 1)
        return error("E0311", node.nics.front().where, "no dump gives the speed of the NICs",
                     "give it with --nic-bandwidth '200 Gb/s', or add the fabric's ibnetdiscover or NCCL's topology");
      if (silent) {
        warn(node.nics.front().where, "the NICs are left out: no dump gives their speed",
             "--nic-bandwidth '200 Gb/s' gives it");
        node.nics.clear();
      }
      if (count_ > 1 && node.nics.empty())
        return error("E0311", node.where, fmt::format("nothing connects the {} nodes: the dump has no NICs", count_));
    }
    return true;
  }

  // ---- the cluster

  bool conclude() {
    Cluster& cluster = out_.cluster;
    cluster.name = options_.name;
    cluster.devices = {device_};
    cluster.nodes = count_;
    cluster.sources = evidence_.sources;
    std::string why;
    Shape shape;
    if (!node_shape(shape.node, why)) {
      if (failed_) return false;
      return odd(why);
    }
    if (evidence_.fabric) {
      const auto regular = regular_fabric(*evidence_.fabric, hosts_, why);
      if (!regular) return odd(why);
      shape.network = regular->network;
      if (shape.node.nic_bandwidth.value != regular->nic_bandwidth && options_.nic_bandwidth.value == 0) {
        warn(evidence_.fabric->where, "NICs and cables differ in speed; the cables' speed is used");
        shape.node.nic_bandwidth = BytesPerSecond{regular->nic_bandwidth};
      }
    } else if (count_ > 1) {
      warn(nodes_.front().where,
           "no dump describes the network between the nodes; assumed: one switch without oversubscription",
           "add the output of ibnetdiscover");
    }
    shape.network.kind = infiniband() ? "infiniband" : "roce";
    shape.network.hop_latency = known_.hop_latency;
    cluster.shape = std::move(shape);
    add_assumptions();
    if (vertices_of(cluster.shape->node, count_, cluster.devices_per_node) > kMostVertices ||
        cluster.size() > kMostDevices)
      return error("C11", {}, fmt::format("{} nodes make a larger graph than Orrery builds", count_));
    build(cluster);
    return true;
  }

  [[nodiscard]] bool infiniband() const {
    return nodes_.empty() || nodes_.front().nics.empty() || nodes_.front().nics.front().infiniband;
  }

  void add_assumptions() {
    assumptions_.push_back(
        "assumed: latencies of NVLink, PCIe, sockets, NICs and switches as in Orrery's clusters/import/known.yaml");
    out_.cluster.sources.insert(out_.cluster.sources.end(), assumptions_.begin(), assumptions_.end());
  }

  /// The shape that all nodes share; false with `why`, or after an error.
  bool node_shape(NodeShape& shape, std::string& why) {
    if (catalogue_node_) {
      shape = catalogue_node_->shape->node;
      out_.cluster.devices_per_node = catalogue_node_->devices_per_node;
      out_.cluster.sources.insert(out_.cluster.sources.end(), catalogue_node_->sources.begin(),
                                  catalogue_node_->sources.end());
      return true;
    }
    out_.cluster.devices_per_node = static_cast<int>(nodes_.front().gpus.size());
    bool regular = true;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      FoundNode& node = nodes_[i];
      Assumptions assumptions;
      auto figures = figures_of(node, device_, device_name_, known_, assumptions);
      if (!figures) return pass_on(figures.error());
      find_switches(node, *figures);
      figures_.push_back(*figures);
      if (i == 0) assumptions_ = std::move(assumptions);
      if (node.gpus.size() != nodes_.front().gpus.size())
        return error(
            "E0310", node.where,
            fmt::format("this host has {} GPUs, the first one {}", node.gpus.size(), nodes_.front().gpus.size()),
            "all nodes of a cluster have the same number");
      FoundNode sorted = node;
      const auto one = regular_node(sorted, *figures, known_, why);
      if (!one) {
        regular = false;
        continue;
      }
      if (hosts_.empty()) node.nics = sorted.nics;  // keep the dump's order of NICs if ports must be matched to them
      if (i == 0) shape = *one;
      if (i > 0 && !(*one == shape)) {
        why = "hosts differ";
        regular = false;
      }
    }
    if (regular && nodes_.size() > 1 && nodes_.front().far_switch) {
      why = "NVSwitches may join several hosts";
      regular = false;
    }
    return regular;
  }

  /// Builds the link-by-link form, with a warning that says why.
  bool odd(const std::string& why) {
    if (catalogue_node_)
      return error("E0310", evidence_.fabric->where,
                   fmt::format("the fabric has no regular shape ({}), and --node gives only regular nodes", why),
                   "give a dump of the node");
    warn(nodes_.front().where, fmt::format("written link by link: {}", why));
    Cluster& cluster = out_.cluster;
    add_assumptions();
    if (static_cast<double>(count_) * static_cast<double>(nodes_.front().gpus.size()) > kMostDevices)
      return error("C11", nodes_.front().where, fmt::format("{} nodes make a larger graph than Orrery builds", count_));
    std::optional<Graph::vertex_descriptor> far;
    if (nodes_.size() > 1 &&
        std::any_of(nodes_.begin(), nodes_.end(), [](const FoundNode& n) { return n.far_switch; })) {
      Vertex vertex;
      vertex.kind = VertexKind::nvswitch;
      vertex.name = "nvswitch";
      far = boost::add_vertex(std::move(vertex), cluster.graph);
    }
    std::vector<std::vector<Graph::vertex_descriptor>> nics;
    for (int n = 0; n < count_; ++n) {
      const std::size_t from = std::min(static_cast<std::size_t>(n), nodes_.size() - 1);
      const std::string name = hosts_.empty() ? fmt::format("node{}", n) : hosts_[static_cast<std::size_t>(n)].name;
      nics.push_back(add_node(cluster.graph, nodes_[from], figures_[from], known_, n, name, far));
    }
    if (evidence_.fabric) {
      add_cables(cluster.graph, *evidence_.fabric, hosts_, nics, known_);
    } else if (count_ > 1) {
      warn(nodes_.front().where,
           "no dump describes the network between the nodes; assumed: one switch without oversubscription",
           "add the output of ibnetdiscover");
      add_leaf(cluster.graph, nodes_, nics, known_);
    }
    return true;
  }

  /// Reads the written text back, so that a cluster that cannot be used is refused here, not by the next command.
  bool verify() {
    out_.yaml = write_cluster(out_.cluster);
    auto again = parse_cluster(out_.yaml, options_.name + ".yaml", find_);
    if (!again) {
      for (const base::Diagnostic& one : again.error())
        if (one.severity == base::Severity::error)
          error(one.code.c_str(), nodes_.empty() ? base::Location{} : nodes_.front().where, one.message, one.help);
      return false;
    }
    out_.cluster = std::move(*again);
    return true;
  }

  const std::vector<Dump>& dumps_;
  const ImportOptions& options_;
  const Known& known_;
  const Find& find_;
  Evidence evidence_;
  std::vector<FoundNode> nodes_;
  std::vector<NodeFigures> figures_;
  std::optional<Cluster> catalogue_node_;
  std::vector<Host> hosts_;
  Device device_;
  std::string device_name_;
  int count_ = 1;
  Assumptions assumptions_;
  base::Diagnostics found_;
  bool failed_ = false;
  Imported out_;
};

}  // namespace

const char* name_of(DumpFormat format) {
  switch (format) {
    case DumpFormat::nccl: return "nccl";
    case DumpFormat::topo_matrix: return "topo";
    case DumpFormat::hwloc: return "hwloc";
    case DumpFormat::ibnetdiscover: return "ibnetdiscover";
  }
  return "?";
}

std::string source_line(std::string_view text, int line) {
  constexpr std::size_t kLongest = 240;
  const Lines lines(text, {});
  if (line < 1 || line > lines.count()) return {};
  return std::string(lines.line(line).substr(0, kLongest));
}

std::optional<DumpFormat> dump_format(std::string_view text) {
  const std::string_view root = xml_root(text);
  if (root == "system" || root == "graphs") return DumpFormat::nccl;
  if (root == "topology") return DumpFormat::hwloc;
  if (text.find("switchguid=") != std::string_view::npos || text.find("caguid=") != std::string_view::npos ||
      text.find("# Initiated from node") != std::string_view::npos)
    return DumpFormat::ibnetdiscover;
  if (text.find("GPU0") != std::string_view::npos) return DumpFormat::topo_matrix;
  return std::nullopt;
}

base::Result<Imported> import_cluster(const std::vector<Dump>& dumps, const ImportOptions& options, const Known& known,
                                      const Find& find) {
  return Importer(dumps, options, known, find).run();
}

}  // namespace orrery::clusters
