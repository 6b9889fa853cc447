#pragma once
/// Who talks to whom over which links: the communicators of the jobs that share a cluster, and how equal ones fold.
///
/// A communicator is one process group, one pair of neighbouring stages' ranks in one direction, or one rank's copies
/// in one direction. A collective runs on rings, all-reduces for which the library takes trees on trees, an all-to-all
/// between all pairs; how many connections cross each link is counted on the graph (sim/connections.h). Of a group none
/// of whose collectives of that sort takes longer in transfer than in latency, trees or pairs are not laid: what its
/// few bytes do to a link is counted along the ring.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "clusters/routes.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"
#include "sim/fabric.h"

namespace orrery::sim {

/// One schedule on part of a cluster, which is pricing.cluster().
struct JobOnCluster {
  const plan::Schedule* schedule = nullptr;
  const cost::Pricing* pricing = nullptr;
  std::vector<int> devices = {};  ///< of each rank; empty: rank r runs on device r
  [[nodiscard]] int device(int rank) const { return devices.empty() ? rank : devices[static_cast<std::size_t>(rank)]; }
};

/// What one step does with one link.
struct Use {
  int link = 0;   ///< index into Traffic::links, or a class of links after folding
  int count = 0;  ///< connections of one communicator that cross it
  int times = 1;  ///< communicators of the class that do so
};

/// Between whom a collective's bytes go.
enum class Wiring : std::uint8_t { rings, trees, pairs };
constexpr std::size_t kWirings = 3;

/// The connections of one wiring. A message between two ranks, or a copy, is a ring's.
struct Wired {
  int connections = 1;              ///< rings side by side; of trees, each with both; of pairs, from each to each other
  std::size_t first = 0, last = 0;  ///< in Traffic::uses
};

struct Communicator {
  int job = 0, role = 0;
  int rank = 0;  ///< its lowest member; of a pair the sender
  int ranks = 2;
  clusters::Span span;
  std::array<Wired, kWirings> wirings;
  [[nodiscard]] Wired& wired(Wiring w) { return wirings[static_cast<std::size_t>(w)]; }
  [[nodiscard]] const Wired& wired(Wiring w) const { return wirings[static_cast<std::size_t>(w)]; }
};

/// A role is a process group of the schedule (0 ... groups - 1), a distance that a stage sends over (after those), or a
/// stream of copies between a rank's own memories (after those), in which a rank is alone.
struct JobRoles {
  std::vector<int> peers;                       ///< role groups + i: to the stage `peers[i]` further
  std::vector<plan::Stream> copies;             ///< role groups + peers + i
  std::vector<std::vector<int>> communicators;  ///< [role][rank]: of a pair the sender's; -1: none
  [[nodiscard]] int role_of_peer(int peer, int groups) const;
  [[nodiscard]] int role_of_copy(plan::Stream stream, int groups) const;
};

struct Traffic {
  std::vector<JobRoles> jobs;
  std::vector<Communicator> communicators;
  std::vector<Use> uses;
  std::vector<int> links;  ///< directions of the fabric that anybody crosses
};

/// `fabric` may be null: then nobody shares anything (CPU ranks, whose prices are measured where they share).
[[nodiscard]] Traffic traffic_of(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster,
                                 const Fabric* fabric);

/// How a message of this price goes where its links matter.
[[nodiscard]] Wiring wiring_of(const plan::Step& step, const cost::Alone& price);

/// Ranks of a communicator, the sender first of a pair.
[[nodiscard]] std::vector<int> members_of(const Communicator& communicator, const JobOnCluster& job,
                                          const JobRoles& roles);

/// One class each of equal ranks, communicators and links.
struct Folded {
  struct Ranks {
    int job = 0, stage = 0;
    int representative = 0;  ///< lowest rank
    int count = 0;
  };
  struct Communicators {
    int representative = 0;  ///< index into Traffic::communicators
    int count = 0;
    int participants = 0;                         ///< classes of ranks that take part in one
    std::array<std::vector<Use>, kWirings> uses;  ///< of classes of links
    [[nodiscard]] const std::vector<Use>& of(Wiring w) const { return uses[static_cast<std::size_t>(w)]; }
  };
  struct Links {
    int representative = 0;  ///< direction of the fabric
    int count = 0;
  };
  std::vector<Ranks> ranks;
  std::vector<Communicators> communicators;
  std::vector<Links> links;
  std::vector<int> class_of_communicator;
};

/// By colour refinement, in which links that others imply (Fabric::implied) are left out; `every_rank`: nothing is
/// folded or left out.
[[nodiscard]] Folded fold(const Traffic& traffic, std::span<const JobOnCluster> jobs, const Fabric* fabric,
                          bool every_rank);

}  // namespace orrery::sim
