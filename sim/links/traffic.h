#pragma once
/// Which ranks talk over which links: the communicators of the jobs that share a cluster, and how equal ones fold.
///
/// A communicator is one process group, one pair of ranks of neighbouring stages in one direction, or one rank's copies
/// in one direction. Collectives run on rings, all-reduces for which the library chooses trees on trees, all-to-alls
/// between all pairs; the connections that cross each link are counted on the graph (sim/links/connections.h). Trees or
/// pairs are counted for a group only if one of its collectives of that kind takes longer in transfer than in latency;
/// otherwise its few bytes are counted along the ring.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "clusters/routes.h"
#include "cost/prices/mean_share.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"
#include "sim/links/fabric.h"

namespace orrery::sim {

/// One schedule on some of a cluster's devices; the cluster is pricing.cluster().
struct JobOnCluster {
  const plan::Schedule* schedule = nullptr;
  const cost::Pricing* pricing = nullptr;
  std::vector<int> devices = {};  ///< by rank; empty: rank r runs on device r
  cost::MeanShare mean = {};      ///< the mean rank's share of the work; the schedule has the fullest rank's
  [[nodiscard]] int device(int rank) const { return devices.empty() ? rank : devices[static_cast<std::size_t>(rank)]; }
};

/// The use of one link by one step.
struct Use {
  int link = 0;   ///< index into Traffic::links, or a class of links after folding
  int count = 0;  ///< connections of one communicator over the link
  int times = 1;  ///< communicators of the class that use it in this way
};

/// Between which members a collective's bytes travel.
enum class Wiring : std::uint8_t { rings, trees, pairs };
constexpr std::size_t kWirings = 3;

/// The connections of one wiring. Messages between two ranks, and copies, use `rings`.
struct Wired {
  int connections = 1;              ///< parallel rings; trees: each with both trees; pairs: between each two members
  std::size_t first = 0, last = 0;  ///< in Traffic::uses
};

struct Communicator {
  int job = 0, role = 0;
  int rank = 0;  ///< lowest member; for a pair, the sender
  int ranks = 2;
  clusters::GroupSpan span;
  std::array<Wired, kWirings> wirings;
  [[nodiscard]] Wired& wired(Wiring w) { return wirings[static_cast<std::size_t>(w)]; }
  [[nodiscard]] const Wired& wired(Wiring w) const { return wirings[static_cast<std::size_t>(w)]; }
};

/// A role is a process group of the schedule, then a distance over which a stage sends, then a stream of copies between
/// a rank's own memories, which has no other participant.
[[nodiscard]] inline int role_of(plan::GroupId group) {
  return static_cast<int>(group.index());
}
/// The other roles of a job, and the ranks in each.
struct JobRoles {
  std::vector<int> peers;                       ///< role groups + i: sends to the stage `peers[i]` further
  std::vector<plan::Stream> copies;             ///< role groups + peers + i
  std::vector<std::vector<int>> communicators;  ///< [role][rank]: of a pair, the sender's; -1: none
  [[nodiscard]] int role_of_peer(int peer, int groups) const;
  [[nodiscard]] int role_of_copy(plan::Stream stream, int groups) const;
};

struct Traffic {
  std::vector<JobRoles> jobs;
  std::vector<Communicator> communicators;
  std::vector<Use> uses;
  std::vector<int> links;  ///< directions of the fabric that any message crosses
};

/// `fabric` may be null: nothing is shared (CPU ranks, whose measured prices include sharing).
[[nodiscard]] Traffic traffic_of(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster,
                                 const Fabric* fabric);

/// The wiring of a message with this price, if its links matter.
[[nodiscard]] Wiring wiring_of(const plan::Step& step, const cost::Alone& price);

/// Ranks of a communicator; for a pair, the sender first.
[[nodiscard]] std::vector<int> members_of(const Communicator& communicator, const JobOnCluster& job,
                                          const JobRoles& roles);

/// Classes of equal ranks, communicators and links.
struct Folded {
  struct Ranks {
    int job = 0;
    plan::StageId stage;
    int representative = 0;  ///< lowest rank
    int count = 0;
  };
  struct Communicators {
    int representative = 0;  ///< index into Traffic::communicators
    int count = 0;
    int participants = 0;                         ///< classes of ranks that participate in one
    std::array<std::vector<Use>, kWirings> uses;  ///< over classes of links
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

/// Folds by colour refinement, ignoring links that others imply (Fabric::implied); `every_rank`: folds and ignores
/// nothing.
[[nodiscard]] Folded fold(const Traffic& traffic, std::span<const JobOnCluster> jobs, const Fabric* fabric,
                          bool every_rank);

}  // namespace orrery::sim
