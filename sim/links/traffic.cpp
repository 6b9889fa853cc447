// Makes communicators role by role, with their connections (sim/links/connections.h).
#include "sim/links/traffic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "base/ensure.h"
#include "base/index.h"
#include "sim/links/connections.h"

namespace orrery::sim {

namespace {

using base::at;

using plan::RankClass;
using plan::Schedule;
using plan::Step;
using plan::StepKind;

int ranks_per_stage(const Schedule& schedule) {
  return schedule.spec.mesh.ranks_per_stage();
}

// The roles that the steps of a class play.
struct Played {
  std::set<plan::GroupId> groups, rings;  // rings: those whose members only send to the next
  std::set<int> peers;
  std::set<plan::Stream> copies;
};
Played played_by(const RankClass& c) {
  Played played;
  for (const plan::Block& block : c.blocks)
    for (const Step& step : block.steps) {
      if (step.kind == StepKind::collective) played.groups.insert(step.group);
      if (step.kind == StepKind::collective && step.collective == plan::CollectiveKind::ring_shift)
        played.rings.insert(step.group);
      if (step.kind == StepKind::send) played.peers.insert(step.peer);
      if (step.kind == StepKind::copy) played.copies.insert(step.stream);
    }
  return played;
}

class Maker {
 public:
  Maker(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric)
      : jobs_(jobs), cluster_(cluster), fabric_(fabric) {}

  Traffic run() {
    std::unique_ptr<Connections> connections;
    if (fabric_) connections = std::make_unique<Connections>(*fabric_, cluster_, traffic_);
    connections_ = connections.get();
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
    std::set<plan::Stream> copies;
    for (const RankClass& c : schedule.classes) {
      const Played played = played_by(c);
      peers.insert(played.peers.begin(), played.peers.end());
      copies.insert(played.copies.begin(), played.copies.end());
    }
    roles.peers.assign(peers.begin(), peers.end());
    roles.copies.assign(copies.begin(), copies.end());
    roles.communicators.assign(schedule.groups.size() + roles.peers.size() + roles.copies.size(),
                               std::vector<int>(at(schedule.spec.mesh.ranks()), -1));
    for (const RankClass& c : schedule.classes) {
      const Played played = played_by(c);
      const int first = c.stage.number() * ranks_per_stage(schedule);
      for (int rank = first; rank < first + c.count; ++rank) {
        for (const plan::GroupId g : played.groups) add_group(j, g, rank, played.rings.contains(g));
        for (const int peer : played.peers) add_pair(j, peer, rank);
        for (const plan::Stream stream : played.copies) add_copies(j, stream, rank);
      }
    }
  }

  void add_group(int j, plan::GroupId g, int rank, bool ring) {
    const plan::Group& group = jobs_[at(j)].schedule->groups[g];
    std::vector<int>& known = traffic_.jobs[at(j)].communicators[at(role_of(g))];
    if (known[at(rank)] >= 0 || !group.contains(rank)) return;
    const std::vector<int> members = group.members(rank);
    std::vector<int> devices;
    devices.reserve(members.size());
    for (const int member : members) {
      known[at(member)] = static_cast<int>(traffic_.communicators.size());
      devices.push_back(jobs_[at(j)].device(member));
    }
    Communicator c;
    c.job = j, c.role = role_of(g), c.rank = members.front(), c.ranks = static_cast<int>(members.size());
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

  void add_copies(int j, plan::Stream stream, int rank) {
    JobRoles& roles = traffic_.jobs[at(j)];
    const int role = roles.role_of_copy(stream, static_cast<int>(jobs_[at(j)].schedule->groups.size()));
    roles.communicators[at(role)][at(rank)] = static_cast<int>(traffic_.communicators.size());
    Communicator c;
    c.job = j, c.role = role, c.rank = rank, c.ranks = 1;
    if (connections_) connections_->add_copies(jobs_[at(j)].device(rank), stream, c);
    traffic_.communicators.push_back(c);
  }

  void add(Communicator c, const std::vector<int>& devices, bool ring = false) {
    if (connections_) {
      c.span = clusters::span_of(cluster_, ring ? cost::slowest_hop(cluster_, devices) : devices);
      const bool pair = at(c.role) >= jobs_[at(c.job)].schedule->groups.size();
      if (ring) {
        connections_->add_shift(devices, c);
      } else if (pair) {
        connections_->add_pair(devices[0], devices[1], c);
      } else {
        connections_->add_rings(devices, c);
      }
      if (!c.span.within_node) c.span.bandwidth = std::max(c.span.bandwidth, alone(c));
      if (!pair && !ring) {
        if (runs_on(Wiring::trees, c)) connections_->add_trees(devices, c);
        if (runs_on(Wiring::pairs, c)) connections_->add_exchange(devices, c);
      }
    }
    traffic_.communicators.push_back(c);
  }

  // Whether some collective of the group uses this wiring and is large enough for its links to matter.
  [[nodiscard]] bool runs_on(Wiring wiring, const Communicator& c) {
    const auto [known, fresh] = runs_on_.try_emplace(std::make_tuple(
        wiring, c.job, c.role, c.ranks, c.span.nodes, c.span.per_node, c.span.bandwidth.value, c.span.latency.value));
    if (!fresh) return known->second;
    const JobOnCluster& job = jobs_[at(c.job)];
    for (const RankClass& ranks : job.schedule->classes) {
      for (const plan::Block& block : ranks.blocks) {
        for (const Step& step : block.steps) {
          const plan::CollectiveKind kind =
              wiring == Wiring::trees ? plan::CollectiveKind::all_reduce : plan::CollectiveKind::all_to_all;
          if (step.kind != StepKind::collective || role_of(step.group) != c.role || step.collective != kind) continue;
          const base::Bytes message = job.pricing->as_sent(step, ranks.buffers, job.schedule->spec.numerics.precision);
          const cost::Alone price = job.pricing->collective_alone(step.collective, message, c.span, c.ranks);
          known->second = known->second || (wiring_of(step, price) == wiring && price.transfer > price.latency);
        }
      }
    }
    return known->second;
  }

  // A member's bandwidth on the network's cables if nobody else uses them. clusters::span_of assumes that the rest of
  // the cluster does the same; here sharing follows from the links.
  [[nodiscard]] base::BytesPerSecond alone(const Communicator& c) const {
    const Wired& rings = c.wired(Wiring::rings);
    double connection = std::numeric_limits<double>::infinity();
    for (std::size_t u = rings.first; u < rings.last; ++u) {
      const Direction& d = fabric_->direction(traffic_.links[at(traffic_.uses[u].link)]);
      if (d.kind == clusters::LinkKind::network)
        connection = std::min(connection, d.bandwidth / traffic_.uses[u].count);
    }
    return base::BytesPerSecond{std::isfinite(connection) ? connection * rings.connections / c.span.per_node : 0};
  }

  std::span<const JobOnCluster> jobs_;
  const clusters::Cluster& cluster_;
  const Fabric* fabric_;
  Connections* connections_ = nullptr;
  std::map<std::tuple<Wiring, int, int, int, int, int, double, double>, bool> runs_on_;
  Traffic traffic_;
};

}  // namespace

Wiring wiring_of(const plan::Step& step, const cost::Alone& price) {
  if (step.kind != StepKind::collective) return Wiring::rings;
  if (step.collective == plan::CollectiveKind::all_to_all) return Wiring::pairs;
  return price.tree ? Wiring::trees : Wiring::rings;
}

int JobRoles::role_of_peer(int peer, int groups) const {
  const auto found = std::lower_bound(peers.begin(), peers.end(), peer);
  ENSURE(found != peers.end() && *found == peer, "nobody sends {} stages further", peer);
  return groups + static_cast<int>(found - peers.begin());
}

int JobRoles::role_of_copy(plan::Stream stream, int groups) const {
  const auto found = std::find(copies.begin(), copies.end(), stream);
  ENSURE(found != copies.end(), "nobody copies {}", plan::name_of(stream));
  return groups + static_cast<int>(peers.size() + static_cast<std::size_t>(found - copies.begin()));
}

Traffic traffic_of(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric) {
  return Maker(jobs, cluster, fabric).run();
}

std::vector<int> members_of(const Communicator& c, const JobOnCluster& job, const JobRoles& roles) {
  const auto groups = static_cast<int>(job.schedule->groups.size());
  if (c.role < groups) return job.schedule->groups[at(c.role)].members(c.rank);
  if (at(c.role - groups) >= roles.peers.size()) return {c.rank};
  return {c.rank, c.rank + roles.peers[at(c.role - groups)] * ranks_per_stage(*job.schedule)};
}

}  // namespace orrery::sim
