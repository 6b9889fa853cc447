// Communicators are made role by role; their connections are laid on the fabric hop by hop and counted.
#include "sim/traffic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/ensure.h"
#include "sim/symmetry.h"

namespace orrery::sim {

namespace {

using plan::RankClass;
using plan::Schedule;
using plan::Step;
using plan::StepKind;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

int ranks_per_stage(const Schedule& schedule) {
  return schedule.spec.ranks_per_stage();
}

// Which roles the steps of a class play.
struct Played {
  std::set<int> groups, peers;
  std::set<int> rings;  // groups whose members only send to the next
};
Played played_by(const RankClass& c) {
  Played played;
  for (const plan::Block& block : c.blocks)
    for (const Step& step : block.steps) {
      if (step.kind == StepKind::collective) played.groups.insert(step.group);
      if (step.kind == StepKind::collective && step.collective == plan::CollectiveKind::ring_shift)
        played.rings.insert(step.group);
      if (step.kind == StepKind::send) played.peers.insert(step.peer);
    }
  return played;
}

// Counts connections on directions of the fabric.
class Counter {
 public:
  Counter(const Fabric& fabric, Traffic& traffic)
      : fabric_(fabric), traffic_(traffic), number_(at(fabric.directions()), -1), count_(at(fabric.directions()), 0) {}

  void begin() { touched_.clear(); }
  void hop(int a, int b, int way, int connections) {
    route_.clear();
    fabric_.route(a, b, way, route_);
    for (const int d : route_) {
      if (count_[at(d)] == 0) touched_.push_back(d);
      count_[at(d)] += connections;
    }
  }
  void end(Communicator& c) {
    c.first_use = traffic_.uses.size();
    for (const int d : touched_) {
      if (number_[at(d)] < 0) {
        number_[at(d)] = static_cast<int>(traffic_.links.size());
        traffic_.links.push_back(d);
      }
      traffic_.uses.push_back({number_[at(d)], count_[at(d)], 1});
      count_[at(d)] = 0;
    }
    c.last_use = traffic_.uses.size();
  }

 private:
  const Fabric& fabric_;
  Traffic& traffic_;
  std::vector<int> number_, count_;
  std::vector<int> touched_, route_;
};

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

// Rings over the group. Within a node one connection from each device to the next. Over several nodes one for each NIC
// of the fullest node's members: connection c comes into a node at member c, passes all members and leaves at the one
// before c, on to the device in the same place of the next node; so each member sends to the network once.
void count_rings(const std::vector<std::vector<int>>& nodes, const Fabric& fabric, Communicator& c, Counter& counter) {
  if (nodes.size() == 1) {
    const std::vector<int>& devices = nodes.front();
    for (std::size_t i = 0; i < devices.size(); ++i) counter.hop(devices[i], devices[(i + 1) % devices.size()], 0, 1);
    return;
  }
  std::size_t members = 1;
  int ways = 1;
  for (const std::vector<int>& devices : nodes) {
    members = std::max(members, devices.size());
    for (const int d : devices) ways = std::max(ways, fabric.ways(d));
  }
  c.connections = static_cast<int>(members) * ways;
  const auto member = [&](const std::vector<int>& devices, std::size_t connection) {
    return connection * devices.size() / members;
  };
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const std::vector<int>& here = nodes[n];
    const std::vector<int>& next = nodes[(n + 1) % nodes.size()];
    for (std::size_t k = 0; k < members; ++k)
      for (int way = 0; way < ways; ++way) counter.hop(here[member(here, k)], next[member(next, k)], way, 1);
    if (here.size() < 2) continue;
    std::vector<int> entering(here.size(), 0);
    for (std::size_t k = 0; k < members; ++k) entering[member(here, k)] += ways;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t to = (i + 1) % here.size();
      const int passing = c.connections - entering[to];  // those that come in at `to` end before it
      if (passing > 0) counter.hop(here[i], here[to], 0, passing);
    }
  }
}

// Each member to the next, over all NICs of the two where they are on different nodes.
void count_shift(const std::vector<int>& devices, const Fabric& fabric, Communicator& c, Counter& counter) {
  int ways = 1;
  if (!c.span.within_node)
    for (const int d : devices) ways = std::max(ways, fabric.ways(d));
  c.connections = ways;
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (int way = 0; way < ways; ++way) counter.hop(devices[i], devices[(i + 1) % devices.size()], way, 1);
}

class Maker {
 public:
  Maker(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric)
      : jobs_(jobs), cluster_(cluster), fabric_(fabric) {}

  Traffic run() {
    std::unique_ptr<Counter> counter;
    if (fabric_) counter = std::make_unique<Counter>(*fabric_, traffic_);
    counter_ = counter.get();
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      traffic_.jobs.emplace_back();
      add_job(static_cast<int>(j));
    }
    return std::move(traffic_);
  }

 private:
  void add_job(int j) {
    const Schedule& schedule = *jobs_[at(j)].schedule;
    JobRoles& roles = traffic_.jobs[at(j)];
    std::set<int> peers;
    for (const RankClass& c : schedule.classes) {
      const Played played = played_by(c);
      peers.insert(played.peers.begin(), played.peers.end());
    }
    roles.peers.assign(peers.begin(), peers.end());
    roles.communicators.assign(schedule.groups.size() + roles.peers.size(),
                               std::vector<int>(at(schedule.spec.ranks()), -1));
    for (const RankClass& c : schedule.classes) {
      const Played played = played_by(c);
      const int first = c.stage * ranks_per_stage(schedule);
      for (int rank = first; rank < first + c.count; ++rank) {
        for (const int g : played.groups) add_group(j, g, rank, played.rings.contains(g));
        for (const int peer : played.peers) add_pair(j, peer, rank);
      }
    }
  }

  void add_group(int j, int g, int rank, bool ring) {
    const plan::Group& group = jobs_[at(j)].schedule->groups[at(g)];
    std::vector<int>& known = traffic_.jobs[at(j)].communicators[at(g)];
    if (known[at(rank)] >= 0 || !group.contains(rank)) return;
    const std::vector<int> members = group.members(rank);
    std::vector<int> devices;
    devices.reserve(members.size());
    for (const int member : members) {
      known[at(member)] = static_cast<int>(traffic_.communicators.size());
      devices.push_back(jobs_[at(j)].device(member));
    }
    Communicator c;
    c.job = j, c.role = g, c.rank = members.front(), c.ranks = static_cast<int>(members.size());
    add(c, devices, ring);
  }

  void add_pair(int j, int peer, int rank) {
    const Schedule& schedule = *jobs_[at(j)].schedule;
    JobRoles& roles = traffic_.jobs[at(j)];
    const int role = roles.role_of_peer(peer, static_cast<int>(schedule.groups.size()));
    roles.communicators[at(role)][at(rank)] = static_cast<int>(traffic_.communicators.size());
    const int other = rank + peer * ranks_per_stage(schedule);
    Communicator c;
    c.job = j, c.role = role, c.rank = rank;
    add(c, {jobs_[at(j)].device(rank), jobs_[at(j)].device(other)});
  }

  void add(Communicator c, const std::vector<int>& devices, bool ring = false) {
    if (counter_) {
      c.span = clusters::span_of(cluster_, ring ? cost::slowest_hop(cluster_, devices) : devices);
      counter_->begin();
      const bool pair = at(c.role) >= jobs_[at(c.job)].schedule->groups.size();
      if (ring) {
        count_shift(devices, *fabric_, c, *counter_);
      } else if (!pair) {
        if (devices.size() > 1) count_rings(by_node(cluster_, devices), *fabric_, c, *counter_);
      } else {
        c.connections = c.span.within_node ? 1 : std::max(fabric_->ways(devices[0]), fabric_->ways(devices[1]));
        for (int way = 0; way < c.connections; ++way) counter_->hop(devices[0], devices[1], way, 1);
      }
      counter_->end(c);
      if (!c.span.within_node) c.span.bandwidth = std::max(c.span.bandwidth, alone(c));
    }
    traffic_.communicators.push_back(c);
  }

  // What a member gets of the network's cables when nobody else is there. clusters::span_of supposes that the rest of
  // the cluster does the same; here that is to come of the links.
  [[nodiscard]] base::BytesPerSecond alone(const Communicator& c) const {
    double connection = std::numeric_limits<double>::infinity();
    for (std::size_t u = c.first_use; u < c.last_use; ++u) {
      const Direction& d = fabric_->direction(traffic_.links[at(traffic_.uses[u].link)]);
      if (d.kind == clusters::LinkKind::network)
        connection = std::min(connection, d.bandwidth / traffic_.uses[u].count);
    }
    return base::BytesPerSecond{std::isfinite(connection) ? connection * c.connections / c.span.per_node : 0};
  }

  std::span<const JobOnCluster> jobs_;
  const clusters::Cluster& cluster_;
  const Fabric* fabric_;
  Counter* counter_ = nullptr;
  Traffic traffic_;
};

}  // namespace

int JobRoles::role_of_peer(int peer, int groups) const {
  const auto found = std::lower_bound(peers.begin(), peers.end(), peer);
  ENSURE(found != peers.end() && *found == peer, "nobody sends {} stages further", peer);
  return groups + static_cast<int>(found - peers.begin());
}

Traffic traffic_of(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric) {
  return Maker(jobs, cluster, fabric).run();
}

std::vector<int> members_of(const Communicator& c, const JobOnCluster& job, const JobRoles& roles) {
  const auto groups = static_cast<int>(job.schedule->groups.size());
  if (c.role < groups) return job.schedule->groups[at(c.role)].members(c.rank);
  return {c.rank, c.rank + roles.peers[at(c.role - groups)] * ranks_per_stage(*job.schedule)};
}

}  // namespace orrery::sim
