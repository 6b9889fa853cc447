/// Finds leaves, rails, spines and pods in a list of cables.
#include "clusters/import/fabric.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "clusters/import/text.h"

namespace orrery::clusters {
namespace {

constexpr double kSame = 1e-9;  // relative: the same rates summed in another order

bool same(double a, double b) {
  return std::abs(a - b) <= kSame * std::max(a, b);
}

const FabricNode& at(const FoundFabric& fabric, int node) {
  return fabric.nodes[static_cast<std::size_t>(node)];
}

/// Bandwidth from each switch to its neighbours.
using Trunks = std::vector<std::map<int, double>>;

Trunks trunks_of(const FoundFabric& fabric) {
  Trunks trunks(fabric.nodes.size());
  for (const FoundCable& cable : fabric.cables) {
    if (!at(fabric, cable.a.node).is_switch || !at(fabric, cable.b.node).is_switch) continue;
    trunks[static_cast<std::size_t>(cable.a.node)][cable.b.node] += cable.bandwidth;
    trunks[static_cast<std::size_t>(cable.b.node)][cable.a.node] += cable.bandwidth;
  }
  return trunks;
}

/// Hosts whose ports lead to the same leaves.
struct HostGroup {
  std::vector<int> leaves;  ///< one, or one for each rail
  std::vector<int> hosts;
};

class Finder {
 public:
  Finder(const FoundFabric& fabric, const std::vector<Host>& hosts)
      : fabric_(fabric), hosts_(hosts), trunks_(trunks_of(fabric)), tiers_(tiers_of(fabric, hosts)) {}

  std::optional<RegularFabric> find(std::string& why) {
    const bool found = speeds() && groups() && trunks_between_tiers() && pods() && spread();
    why = why_;
    if (!found) return std::nullopt;
    return std::move(out_);
  }

 private:
  bool no(std::string why) {
    why_ = std::move(why);
    return false;
  }
  [[nodiscard]] std::string name(int node) const { return base::quoted(at(fabric_, node).name); }
  [[nodiscard]] VertexKind tier(int node) const { return *tiers_[static_cast<std::size_t>(node)]; }

  bool speeds() {
    out_.nic_bandwidth = hosts_.front().ports.front().bandwidth;
    for (const Host& host : hosts_)
      for (const HostPort& port : host.ports)
        if (!same(port.bandwidth, out_.nic_bandwidth)) return no(fmt::format("ports of {} differ in speed", host.name));
    return true;
  }

  bool groups() {
    const auto leaves_of = [](const Host& host) {
      std::vector<int> leaves;
      for (const HostPort& port : host.ports) leaves.push_back(port.leaf);
      return leaves;
    };
    std::map<std::vector<int>, std::size_t> index;
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      std::vector<int> leaves = leaves_of(hosts_[h]);
      const std::set<int> distinct(leaves.begin(), leaves.end());
      const bool one = distinct.size() == 1, rails = !one && distinct.size() == leaves.size();
      if (!one && !rails)
        return no(fmt::format("{} has several ports on some leaf and others elsewhere", hosts_[h].name));
      if (h > 0 && rails != out_.network.rails) return no("some hosts have rails and others do not");
      out_.network.rails = rails;
      if (one) leaves.resize(1);
      const auto [found, is_new] = index.emplace(leaves, groups_.size());
      if (is_new) groups_.push_back({leaves, {}});
      groups_[found->second].hosts.push_back(static_cast<int>(h));
    }
    std::map<int, int> uses;
    for (const HostGroup& group : groups_)
      for (const int leaf : group.leaves)
        if (++uses[leaf] > 1)
          return no(fmt::format("leaf {} is shared by hosts with different other leaves", name(leaf)));
    return true;
  }

  bool trunks_between_tiers() {
    for (std::size_t s = 0; s < trunks_.size(); ++s) {
      if (!tiers_[s]) continue;
      for (const auto& [peer, ignored] : trunks_[s])
        if (tiers_[static_cast<std::size_t>(peer)] == tiers_[s])
          return no(fmt::format("switches {} and {} of one tier are connected", name(static_cast<int>(s)), name(peer)));
    }
    return true;
  }

  /// Uplinks of a switch: to switches of the tier above.
  [[nodiscard]] std::map<int, double> above(int node) const {
    std::map<int, double> up;
    for (const auto& [peer, bandwidth] : trunks_[static_cast<std::size_t>(node)])
      if (tier(peer) > tier(node)) up[peer] = bandwidth;
    return up;
  }
  [[nodiscard]] double total(const std::map<int, double>& links) const {
    double sum = 0;
    for (const auto& [peer, bandwidth] : links) sum += bandwidth;
    return sum;
  }
  [[nodiscard]] double below_leaf(int leaf) const {
    double sum = 0;
    for (const Host& host : hosts_)
      for (const HostPort& port : host.ports)
        if (port.leaf == leaf) sum += port.bandwidth;
    return sum;
  }

  /// Groups that share spines form a pod. Groups and pods are in the order of their first host; a smaller one is last.
  bool pods() {
    std::map<int, std::size_t> pod_of_spine;
    for (const HostGroup& group : groups_) {
      std::size_t pod = pods_.size();
      std::set<int> spines;
      for (const int leaf : group.leaves)
        for (const auto& [spine, ignored] : above(leaf)) spines.insert(spine);
      for (const int spine : spines) {
        const auto found = pod_of_spine.find(spine);
        if (found == pod_of_spine.end()) continue;
        if (pod != pods_.size() && pod != found->second) return no("the spines of two pods meet in one leaf");
        pod = found->second;
      }
      if (pod == pods_.size()) pods_.emplace_back();
      for (const int spine : spines) pod_of_spine[spine] = pod;
      pods_[pod].push_back(group);
    }
    std::size_t per_leaf = 0, per_pod = 0;
    for (const auto& pod : pods_) {
      per_pod = std::max(per_pod, hosts_in(pod));
      for (const HostGroup& group : pod) per_leaf = std::max(per_leaf, group.hosts.size());
    }
    for (auto& pod : pods_)
      std::stable_sort(pod.begin(), pod.end(),
                       [](const HostGroup& a, const HostGroup& b) { return a.hosts.size() > b.hosts.size(); });
    std::stable_sort(pods_.begin(), pods_.end(),
                     [&](const auto& a, const auto& b) { return hosts_in(a) > hosts_in(b); });
    for (std::size_t p = 0; p < pods_.size(); ++p) {
      const bool last = p + 1 == pods_.size();
      if (hosts_in(pods_[p]) != per_pod && !last) return no("pods differ in size");
      for (std::size_t g = 0; g < pods_[p].size(); ++g) {
        const bool final_group = last && g + 1 == pods_[p].size();
        if (pods_[p][g].hosts.size() != per_leaf && !final_group) return no("leaves have different numbers of hosts");
        for (const int host : pods_[p][g].hosts) out_.order.push_back(host);
      }
    }
    if (groups_.size() > 1 || out_.network.rails) out_.network.leaf_nodes = static_cast<int>(per_leaf);
    if (pods_.size() > 1) out_.network.pod_nodes = static_cast<int>(per_pod);
    return true;
  }

  static std::size_t hosts_in(const std::vector<HostGroup>& pod) {
    std::size_t sum = 0;
    for (const HostGroup& group : pod) sum += group.hosts.size();
    return sum;
  }

  /// Whether the uplinks of all `nodes` lead evenly to one set of switches, with the same ratio down / up for all; a
  /// ratio below 1 (more up than down) counts as 1. `below` is the bandwidth below each node.
  bool even(const std::vector<int>& nodes, const std::vector<double>& below, const std::vector<bool>& full,
            double& ratio, const char* what) {
    std::set<int> peers;
    for (const int node : nodes)
      for (const auto& [peer, ignored] : above(node)) peers.insert(peer);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::map<int, double> up = above(nodes[i]);
      if (up.empty()) return no(fmt::format("{} {} has no cable upwards", what, name(nodes[i])));
      if (up.size() != peers.size())
        return no(fmt::format("{} {} is not connected to all switches above", what, name(nodes[i])));
      for (const auto& [peer, bandwidth] : up)
        if (!same(bandwidth, up.begin()->second))
          return no(fmt::format("the cables up from {} {} are not spread evenly", what, name(nodes[i])));
      const double here = std::max(1.0, below[i] / total(up));
      if (full[i] && ratio > 0 && !same(here, ratio))
        return no(fmt::format("{} {} is oversubscribed differently", what, name(nodes[i])));
      if (full[i]) ratio = here;
      if (!full[i] && here > ratio * (1 + kSame))
        return no(fmt::format("{} {} is oversubscribed differently", what, name(nodes[i])));
    }
    return true;
  }

  bool spread() {
    if (groups_.size() == 1) return true;  // no uplinks needed: no host belongs to another group
    double ratio = 0, core = 0;
    std::vector<int> spines;
    std::vector<double> into_spines;
    std::vector<bool> full_spines;
    for (std::size_t p = 0; p < pods_.size(); ++p) {
      std::vector<int> leaves;
      std::vector<double> below;
      std::vector<bool> full;
      std::map<int, double> into;
      for (const HostGroup& group : pods_[p])
        for (const int leaf : group.leaves) {
          leaves.push_back(leaf);
          below.push_back(below_leaf(leaf));
          full.push_back(group.hosts.size() == pods_.front().front().hosts.size());
          for (const auto& [spine, bandwidth] : above(leaf)) into[spine] += bandwidth;
        }
      if (!even(leaves, below, full, ratio, "leaf")) return false;
      for (const auto& [spine, bandwidth] : into) {
        spines.push_back(spine);
        into_spines.push_back(bandwidth);
        full_spines.push_back(hosts_in(pods_[p]) == hosts_in(pods_.front()));
      }
    }
    out_.network.oversubscription = ratio;
    if (pods_.size() == 1) return true;
    if (!even(spines, into_spines, full_spines, core, "spine")) return false;
    out_.network.core_oversubscription = core;
    return true;
  }

  const FoundFabric& fabric_;
  const std::vector<Host>& hosts_;
  const Trunks trunks_;
  const std::vector<std::optional<VertexKind>> tiers_;
  std::vector<HostGroup> groups_;
  std::vector<std::vector<HostGroup>> pods_;
  RegularFabric out_;
  std::string why_;
};

}  // namespace

base::Result<std::vector<Host>> hosts_of(const FoundFabric& fabric) {
  std::map<std::string, Host, decltype(&natural_less)> hosts(&natural_less);
  base::Diagnostics found;
  for (const FoundCable& cable : fabric.cables) {
    const FabricNode &a = at(fabric, cable.a.node), &b = at(fabric, cable.b.node);
    if (a.is_switch && b.is_switch) continue;
    if (!a.is_switch && !b.is_switch) {
      found.push_back(
          {base::Severity::error,
           "E0310",
           cable.where,
           fmt::format("a cable joins {} and {} without a switch", base::quoted(a.name), base::quoted(b.name)),
           "only fabrics of switches are imported",
           {}});
      continue;
    }
    const FoundPort& here = a.is_switch ? cable.b : cable.a;
    const FabricNode& adapter = a.is_switch ? b : a;
    Host& host = hosts[adapter.host];
    host.name = adapter.host;
    host.ports.push_back({adapter.adapter, here.node, here.port, a.is_switch ? cable.a.node : cable.b.node,
                          cable.bandwidth, cable.where});
  }
  if (!found.empty()) return base::fail(std::move(found));
  std::vector<Host> out;
  for (auto& [name, host] : hosts) {
    std::stable_sort(host.ports.begin(), host.ports.end(), [](const HostPort& x, const HostPort& y) {
      if (x.adapter != y.adapter) return natural_less(x.adapter, y.adapter);
      return std::pair{x.node, x.port} < std::pair{y.node, y.port};
    });
    out.push_back(std::move(host));
  }
  return out;
}

std::vector<std::optional<VertexKind>> tiers_of(const FoundFabric& fabric, const std::vector<Host>& hosts) {
  std::vector<std::optional<VertexKind>> tiers(fabric.nodes.size());
  std::vector<int> front;
  for (const Host& host : hosts)
    for (const HostPort& port : host.ports)
      if (auto& tier = tiers[static_cast<std::size_t>(port.leaf)]; !tier) {
        tier = VertexKind::leaf;
        front.push_back(port.leaf);
      }
  const Trunks trunks = trunks_of(fabric);
  for (VertexKind next = VertexKind::spine; !front.empty(); next = VertexKind::core) {
    std::vector<int> reached;
    for (const int node : front)
      for (const auto& [peer, ignored] : trunks[static_cast<std::size_t>(node)])
        if (auto& tier = tiers[static_cast<std::size_t>(peer)]; !tier) {
          tier = next;
          reached.push_back(peer);
        }
    front = std::move(reached);
  }
  return tiers;
}

std::optional<RegularFabric> regular_fabric(const FoundFabric& fabric, const std::vector<Host>& hosts,
                                            std::string& why) {
  return Finder(fabric, hosts).find(why);
}

}  // namespace orrery::clusters
