// Rings, trees and pairs on the fabric.
#include "sim/links/connections.h"

#include <algorithm>

#include "base/index.h"
#include "clusters/rings.h"
#include "clusters/torus.h"

namespace orrery::sim {

namespace {

using base::at;

// Devices by node, both in order of first appearance.
std::vector<std::vector<int>> by_node(const clusters::Cluster& cluster, const std::vector<int>& devices) {
  std::vector<std::vector<int>> nodes;
  std::vector<std::pair<int, std::size_t>> place;  // sorted by node
  for (const int d : devices) {
    const int node = cluster.node_of(d);
    if (!nodes.empty() && cluster.node_of(nodes.back().front()) == node) {
      nodes.back().push_back(d);
      continue;
    }
    const auto found = std::lower_bound(place.begin(), place.end(), std::make_pair(node, std::size_t{0}));
    if (found != place.end() && found->first == node) {
      nodes[found->second].push_back(d);
    } else {
      place.insert(found, {node, nodes.size()});
      nodes.push_back({d});
    }
  }
  return nodes;
}

constexpr std::size_t kMostRoutes = std::size_t{1} << 20;  // limit of routes between nodes for one exchange

/// The number of members of the fullest node, and of NICs that one of them uses.
struct Fullest {
  std::size_t members = 1;
  int ways = 1;
  [[nodiscard]] std::size_t member(const std::vector<int>& devices, std::size_t connection) const {
    return connection * devices.size() / members;
  }
  /// The number of connections that enter a node at each member.
  [[nodiscard]] std::vector<int> entering(const std::vector<int>& devices) const {
    std::vector<int> result(devices.size(), 0);
    for (std::size_t k = 0; k < members; ++k) result[member(devices, k)] += ways;
    return result;
  }
};

Fullest fullest(const std::vector<std::vector<int>>& nodes, const Fabric& fabric) {
  Fullest full;
  for (const std::vector<int>& devices : nodes) {
    full.members = std::max(full.members, devices.size());
    for (const int d : devices) full.ways = std::max(full.ways, fabric.ways(d));
  }
  return full;
}

}  // namespace

Connections::Connections(const Fabric& fabric, const clusters::Cluster& cluster, Traffic& traffic)
    : fabric_(fabric),
      cluster_(cluster),
      traffic_(traffic),
      number_(at(fabric.directions()), -1),
      count_(at(fabric.directions()), 0) {
  if (cluster.shape && cluster.shape->node.fabric == clusters::NodeFabric::torus) torus_ = clusters::torus_of(cluster);
}

void Connections::hop(int a, int b, int way, int connections) {
  route_.clear();
  fabric_.route(a, b, way, route_);
  for (const int d : route_) {
    if (count_[at(d)] == 0) touched_.push_back(d);
    count_[at(d)] += connections;
  }
}

void Connections::end(Wired& wired) {
  wired.first = traffic_.uses.size();
  for (const int d : touched_) {
    if (number_[at(d)] < 0) {
      number_[at(d)] = static_cast<int>(traffic_.links.size());
      traffic_.links.push_back(d);
    }
    traffic_.uses.push_back({number_[at(d)], count_[at(d)], 1});
    count_[at(d)] = 0;
  }
  touched_.clear();
  wired.last = traffic_.uses.size();
}

const std::vector<std::vector<int>>* Connections::channels(const Nodes& nodes) {
  if (!cluster_.shape || cluster_.shape->node.fabric != clusters::NodeFabric::mesh) return nullptr;
  std::vector<std::vector<int>> places;
  for (const std::vector<int>& devices : nodes) {
    std::vector<int>& own = places.emplace_back();
    for (const int d : devices) own.push_back(d % cluster_.devices_per_node);
    if (own != places.front()) return nullptr;
  }
  const bool several = nodes.size() > 1;
  const auto [known, fresh] = channels_.try_emplace({several, places.front()});
  if (fresh) {
    std::vector<int> members = nodes[0];
    if (several) members.insert(members.end(), nodes[1].begin(), nodes[1].end());
    for (const clusters::Channel& channel : clusters::wiring_of(cluster_, members).ring.channels) {
      std::vector<int>& order = known->second.emplace_back();
      for (const int d : channel.order) order.push_back(d % cluster_.devices_per_node);
      if (order.size() != places.front().size()) {  // not through all members, so it cannot be laid as a ring
        known->second.clear();
        break;
      }
    }
  }
  return known->second.empty() ? nullptr : &known->second;
}

void Connections::rings_of_channels(const Nodes& nodes, const std::vector<std::vector<int>>& orders, Wired& wired) {
  wired.connections = static_cast<int>(orders.size());
  for (const std::vector<int>& order : orders) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const int here = cluster_.node_of(nodes[n].front()) * cluster_.devices_per_node;
      const int next = cluster_.node_of(nodes[(n + 1) % nodes.size()].front()) * cluster_.devices_per_node;
      for (std::size_t i = 0; i + 1 < order.size(); ++i) hop(here + order[i], here + order[i + 1], 0, 1);
      hop(here + order.back(), next + order.front(), 0, 1);
    }
  }
}

void Connections::ring_in_node(const std::vector<int>& devices, Wired& wired) {
  wired.connections = 1;
  for (std::size_t i = 0; i < devices.size(); ++i) hop(devices[i], devices[(i + 1) % devices.size()], 0, 1);
}

void Connections::rings_over_nodes(const Nodes& nodes, Wired& wired) {
  const Fullest full = fullest(nodes, fabric_);
  wired.connections = static_cast<int>(full.members) * full.ways;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const std::vector<int>& here = nodes[n];
    const std::vector<int>& next = nodes[(n + 1) % nodes.size()];
    for (std::size_t k = 0; k < full.members; ++k)
      for (int way = 0; way < full.ways; ++way) hop(here[full.member(here, k)], next[full.member(next, k)], way, 1);
    if (here.size() < 2) continue;
    const std::vector<int> entering = full.entering(here);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t to = (i + 1) % here.size();
      const int passing = wired.connections - entering[to];  // those that enter at `to` end before it
      if (passing > 0) hop(here[i], here[to], 0, passing);
    }
  }
}

bool Connections::along_torus(const std::vector<int>& devices, Wired& wired) {
  const std::optional<clusters::TorusGroup> group = clusters::torus_group(*torus_, devices);
  if (!group) return false;
  wired.connections = 0;
  for (const clusters::TorusSide& side : group->sides) {
    wired.connections += side.links();
    const std::size_t d = at(side.dimension);
    for (const int device : devices) {
      std::vector<int> next = torus_->place(device);
      next[d] += side.stride;
      const bool closes = next[d] > side.last();
      if (closes && !side.wraps()) continue;  // the end of a line
      const int way = closes ? 1 : 0;         // of a ring of two both ways are as long
      next[d] %= side.extent;
      const int other = torus_->device(next);
      hop(device, other, way, 1);
      hop(other, device, way, 1);
    }
  }
  return true;
}

void Connections::add_rings(const std::vector<int>& devices, Communicator& c) {
  Wired& wired = c.wired(Wiring::rings);
  if (torus_ && devices.size() > 1 && along_torus(devices, wired)) return end(wired);
  const Nodes nodes = by_node(cluster_, devices);
  if (devices.size() > 1) {
    if (const auto* orders = channels(nodes)) {
      rings_of_channels(nodes, *orders, wired);
    } else if (nodes.size() == 1) {
      ring_in_node(devices, wired);
    } else {
      rings_over_nodes(nodes, wired);
    }
  }
  end(wired);
}

void Connections::add_trees(const std::vector<int>& devices, Communicator& c) {
  Wired& wired = c.wired(Wiring::trees);
  const Nodes nodes = by_node(cluster_, devices);
  const Fullest full = fullest(nodes, fabric_);
  const int counted = nodes.size() == 1 ? 1 : static_cast<int>(full.members) * full.ways;
  const auto both = [&](int a, int b, int way, int times) {
    hop(a, b, way, times);
    hop(b, a, way, times);
  };
  const int count = static_cast<int>(nodes.size());
  for (const auto& tree : {clusters::binary_tree(count), clusters::second_binary_tree(count)}) {
    for (int n = 0; n < count; ++n) {
      const int up = tree[at(n)].up;
      if (up < 0) continue;
      const std::vector<int>&here = nodes[at(n)], &above = nodes[at(up)];
      for (std::size_t k = 0; k < full.members; ++k)
        for (int way = 0; way < full.ways; ++way)
          both(here[full.member(here, k)], above[full.member(above, k)], way, 1);
    }
  }
  for (const std::vector<int>& here : nodes) {
    if (here.size() < 2) continue;
    std::vector<int> entering = full.entering(here);
    if (nodes.size() == 1) {
      std::fill(entering.begin(), entering.end(), 0);
      entering.front() = 1;
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t to = (i + 1) % here.size();
      const int passing = counted - entering[to];
      if (passing > 0) both(here[i], here[to], 0, 2 * passing);  // of both trees
    }
  }
  wired.connections = counted;
  end(wired);
}

void Connections::add_exchange(const std::vector<int>& devices, Communicator& c) {
  Wired& wired = c.wired(Wiring::pairs);
  const Nodes nodes = by_node(cluster_, devices);
  wired.connections = nodes.size() > 1 ? fullest(nodes, fabric_).ways : 1;
  for (const std::vector<int>& here : nodes)
    for (const int a : here)
      for (const int b : here)
        if (a != b) hop(a, b, 0, wired.connections);
  // With very many nodes, one distance represents its neighbours: the load on a tier grows evenly with distance.
  const std::size_t stride = 1 + devices.size() * nodes.size() / kMostRoutes;
  for (std::size_t first = 1; first < nodes.size(); first += stride) {
    const std::size_t alike = std::min(stride, nodes.size() - first);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const std::vector<int>&here = nodes[n], &there = nodes[(n + first + alike / 2) % nodes.size()];
      for (std::size_t i = 0; i < here.size(); ++i)
        for (int way = 0; way < wired.connections; ++way)
          hop(here[i], there[i % there.size()], way, static_cast<int>(there.size() * alike));
    }
  }
  end(wired);
}

void Connections::add_shift(const std::vector<int>& devices, Communicator& c) {
  Wired& wired = c.wired(Wiring::rings);
  wired.connections = 1;
  if (!c.span.within_node)
    for (const int d : devices) wired.connections = std::max(wired.connections, fabric_.ways(d));
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (int way = 0; way < wired.connections; ++way) hop(devices[i], devices[(i + 1) % devices.size()], way, 1);
  end(wired);
}

void Connections::add_pair(int from, int to, Communicator& c) {
  Wired& wired = c.wired(Wiring::rings);
  wired.connections = c.span.within_node ? 1 : std::max(fabric_.ways(from), fabric_.ways(to));
  for (int way = 0; way < wired.connections; ++way) hop(from, to, way, 1);
  end(wired);
}

void Connections::add_copies(int device, plan::Stream stream, Communicator& c) {
  Wired& wired = c.wired(Wiring::rings);
  if (!hosts_) hosts_.emplace(cluster_);
  const bool files = stream == plan::Stream::to_nvme || stream == plan::Stream::from_nvme;
  const bool back = stream == plan::Stream::from_host || stream == plan::Stream::from_nvme;
  for (const int link : (files ? hosts_->to_drives(device) : hosts_->to_memory(device)).links) {
    const int direction = back ? link ^ 1 : link;
    if (count_[at(direction)]++ == 0) touched_.push_back(direction);
  }
  wired.connections = 1;
  end(wired);
}

}  // namespace orrery::sim
