// Which hosts of the fabric are taken, and how their ports and the nodes' NICs belong together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "clusters/import/machine.h"

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

class NetworkChoice {
 public:
  NetworkChoice(Machine& machine, const ImportContext& context)
      : m_(machine), options_(context.options), findings_(context.findings) {}

  bool run() { return choose_hosts() && settle_nics() && settle_count(); }

 private:
  bool choose_hosts() {
    if (!m_.evidence.fabric) return true;
    auto all = hosts_of(*m_.evidence.fabric);
    if (!all) return findings_.pass_on(all.error());
    for (Host& host : *all)
      if (options_.hosts.empty() || matches(options_.hosts, host.name)) m_.hosts.push_back(std::move(host));
    if (m_.hosts.empty())
      return findings_.error("E0310", m_.evidence.fabric->where,
                             options_.hosts.empty()
                                 ? "no host is connected to this fabric"
                                 : fmt::format("no host of this fabric is called {}", base::quoted(options_.hosts)));
    return true;
  }

  bool settle_nics() {
    for (FoundNode& node : m_.nodes) {
      const std::vector<std::string> dropped = drop_far_nics(node);
      if (!dropped.empty() && &node == &m_.nodes.front())
        findings_.warn(node.where,
                       fmt::format("left out, because they share no PCIe switch with a GPU as others do: {}",
                                   fmt::join(dropped, ", ")),
                       "they serve storage and the front end");
      if (options_.nic_bandwidth.value > 0)
        for (FoundNic& nic : node.nics) nic.speed = options_.nic_bandwidth.value;
    }
    return !m_.evidence.fabric || match_ports();
  }

  /// Puts the ports of each host in the order of the node's NICs: by name if the names agree, otherwise by number.
  bool match_ports() {
    std::vector<std::string> names;
    if (!m_.nodes.empty())
      for (const FoundNic& nic : m_.nodes.front().nics) names.push_back(nic.name);
    const std::size_t wanted =
        m_.catalogue_node ? static_cast<std::size_t>(m_.catalogue_node->shape->node.nics) : names.size();
    for (Host& host : m_.hosts) {
      std::vector<HostPort> ports;
      for (const std::string& name : names) {
        const auto port =
            std::find_if(host.ports.begin(), host.ports.end(), [&](const HostPort& p) { return p.adapter == name; });
        if (port != host.ports.end()) ports.push_back(*port);
      }
      if (ports.size() == wanted && wanted > 0) {
        host.ports = std::move(ports);
      } else if (host.ports.size() != wanted) {
        return findings_.error(
            "E0310", host.ports.front().where,
            fmt::format("{} has {} ports in the fabric, a node has {} NICs", host.name, host.ports.size(), wanted),
            "name the hosts to take with --hosts, such as --hosts 'dgx*'");
      }
    }
    for (FoundNode& node : m_.nodes)
      for (std::size_t i = 0; i < node.nics.size(); ++i) {
        const double cable = m_.hosts.front().ports[i].bandwidth;
        if (node.nics[i].speed == 0) node.nics[i].speed = cable;
        node.nics[i].infiniband = true;
      }
    return true;
  }

  bool settle_count() {
    const int said = !m_.hosts.empty()     ? static_cast<int>(m_.hosts.size())
                     : m_.nodes.size() > 1 ? static_cast<int>(m_.nodes.size())
                                           : 0;
    m_.count = options_.nodes > 0 ? options_.nodes : std::max(1, said);
    const base::Location where = !m_.hosts.empty() ? m_.evidence.fabric->where : m_.nodes.front().where;
    if (said > 0 && m_.count != said)
      return findings_.error("E0310", where, fmt::format("--nodes says {} nodes, the dumps have {}", m_.count, said),
                             "leave --nodes out, or name the hosts to take with --hosts");
    if (m_.nodes.size() > 1 && !m_.hosts.empty() && m_.nodes.size() != m_.hosts.size())
      return findings_.error(
          "E0310", where,
          fmt::format("the fused dump has {} hosts and the fabric {}", m_.nodes.size(), m_.hosts.size()));
    if (m_.catalogue_node) return true;
    for (FoundNode& node : m_.nodes) {
      const bool silent =
          std::any_of(node.nics.begin(), node.nics.end(), [](const FoundNic& nic) { return nic.speed == 0; });
      if (silent && m_.count > 1)
        return findings_.error(
            "E0311", node.nics.front().where, "no dump gives the speed of the NICs",
            "give it with --nic-bandwidth '200 Gb/s', or add the fabric's ibnetdiscover or NCCL's topology");
      if (silent) {
        findings_.warn(node.nics.front().where, "the NICs are left out: no dump gives their speed",
                       "--nic-bandwidth '200 Gb/s' gives it");
        node.nics.clear();
      }
      if (m_.count > 1 && node.nics.empty())
        return findings_.error("E0311", node.where,
                               fmt::format("nothing connects the {} nodes: the dump has no NICs", m_.count));
    }
    return true;
  }

  Machine& m_;
  const ImportOptions& options_;
  ImportFindings& findings_;
};

}  // namespace

bool choose_network(Machine& machine, const ImportContext& context) {
  return NetworkChoice(machine, context).run();
}

}  // namespace orrery::clusters
