// Which description of a node is taken, and which device of the catalogue it has.
#include <fmt/format.h>

#include "clusters/device.h"
#include "clusters/import/machine.h"

namespace orrery::clusters {
namespace {

class NodeChoice {
 public:
  NodeChoice(Machine& machine, const ImportContext& context)
      : m_(machine),
        options_(context.options),
        known_(context.known),
        find_(context.find),
        findings_(context.findings) {}

  bool run() { return choose_description() && choose_device(); }

 private:
  /// Takes the node from NCCL's dump, else the matrix, else hwloc: the most detailed first. The others fill its gaps.
  bool choose_description() {
    if (!m_.evidence.nodes.empty()) {
      m_.nodes = std::move(m_.evidence.nodes);
    } else if (m_.evidence.matrix) {
      m_.nodes = {std::move(*m_.evidence.matrix)};
      m_.evidence.matrix.reset();
    } else if (m_.evidence.tree) {
      m_.nodes = {std::move(*m_.evidence.tree)};
      m_.evidence.tree.reset();
    } else {
      return take_catalogue_node();
    }
    if (!options_.node.empty())
      return findings_.error("E0310", m_.nodes.front().where, "the dump describes a node, and --node names another",
                             "leave --node out");
    for (FoundNode& node : m_.nodes) {
      if (m_.evidence.matrix && !complete(node, *m_.evidence.matrix)) return false;
      if (m_.evidence.tree && !complete(node, *m_.evidence.tree)) return false;
    }
    return true;
  }

  bool take_catalogue_node() {
    const base::Location where = m_.evidence.fabric ? m_.evidence.fabric->where : base::Location{};
    if (options_.node.empty())
      return findings_.error("E0311", where, "no dump describes a node, only the network between nodes",
                             "add a dump of one node, or name a cluster whose nodes they are: --node dgx-a100");
    const std::optional<std::string> text = find_ ? find_(options_.node) : std::nullopt;
    if (!text) return findings_.error("C01", {}, fmt::format("cluster '{}' is not in the catalogue", options_.node));
    auto cluster = parse_cluster(*text, options_.node + ".yaml", find_);
    if (!cluster) return findings_.pass_on(cluster.error());
    if (!cluster->shape || cluster->shape->node.nics == 0)
      return findings_.error("E0310", where,
                             fmt::format("the nodes of {} have no NICs, or no regular shape", options_.node));
    m_.catalogue_node = std::move(*cluster);
    return true;
  }

  bool complete(FoundNode& node, const FoundNode& other) {
    const base::Diagnostics wrong = fill(node, other);
    return wrong.empty() || findings_.pass_on(wrong);
  }

  bool choose_device() {
    if (m_.catalogue_node) {
      if (!options_.device.empty()) return load_device(options_.device);
      m_.device = m_.catalogue_node->device();
      return true;
    }
    if (!options_.device.empty()) return load_device(options_.device);
    for (const FoundNode& node : m_.nodes) {
      const auto name = identify(node, known_);
      if (!name) return findings_.pass_on(name.error());
      if (!m_.device_name.empty() && *name != m_.device_name)
        return findings_.error("E0309", node.where,
                               fmt::format("this host has {} and others {}", *name, m_.device_name),
                               "a cluster has one kind of GPU");
      m_.device_name = *name;
    }
    return load_device(m_.device_name);
  }

  bool load_device(const std::string& name) {
    m_.device_name = name;
    const std::optional<std::string> text = find_ ? find_("devices/" + name) : std::nullopt;
    if (!text) {
      const base::Location where = m_.nodes.empty() ? base::Location{} : m_.nodes.front().gpus.front().where;
      return findings_.error(
          "C01", where, fmt::format("device '{}' is not in the catalogue", name),
          "write it as a file of clusters/catalog/devices, in a folder named by --catalog, or name another "
          "with --device");
    }
    auto device = base::read_document<Device>(*text, "devices/" + name + ".yaml",
                                              std::function<Device(const base::Cursor&)>(read_device));
    if (!device) return findings_.pass_on(device.error());
    m_.device = std::move(*device);
    return true;
  }

  Machine& m_;
  const ImportOptions& options_;
  const Known& known_;
  const Find& find_;
  ImportFindings& findings_;
};

}  // namespace

bool choose_node(Machine& machine, const ImportContext& context) {
  return NodeChoice(machine, context).run();
}

}  // namespace orrery::clusters
