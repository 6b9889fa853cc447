#pragma once
/// One collective by one algorithm on a cluster's links: in closed form on an idle graph (cost/network/algorithms.h),
/// and replayed message by message (sim/collectives/replay_transfers.h), alone or several at once; and the links that
/// it uses. Datasheet bandwidths and latencies, without a library's tuning.
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/paths.h"
#include "cost/results.h"
#include "plan/transfers/transfers.h"
#include "sim/links/fabric.h"

namespace orrery::sim {

/// Devices of a group in member order: those of a node are consecutive, and all nodes have the same number of them.
using Members = std::vector<int>;

/// Deals `devices` out to `tasks` groups in turn, like data-parallel ranks with `tasks` adjacent tensor-parallel ranks.
/// Empty if the groups would differ: if `tasks` neither divides nor is a multiple of the devices per node, or does not
/// divide their total.
[[nodiscard]] std::vector<Members> dealt_out(const clusters::Cluster& cluster, const Members& devices, int tasks);

struct CollectiveCase {
  plan::Algorithm algorithm = plan::Algorithm::ring;
  plan::Goal goal = plan::Goal::all_reduce;
  std::vector<Members> tasks;  ///< groups that each run the collective; all start together
  base::Bytes message;         ///< of each task; defined as for cost::collective_time
  int pieces = 1;              ///< for algorithms that send consecutive pieces
  /// The number of parts into which the message is divided. Each part runs the algorithm with the members in another
  /// order: it starts at the next device of each node, and on a ring ends with the last device of every other node. So
  /// each part uses other NICs, as a library's channels do. A root stays the root.
  int channels = 1;
};

/// The default number of pieces: pieces of 512 KiB, NCCL's buffer of 4 MiB in 8 steps (NCCL_BUFFSIZE, NCCL_STEPS of
/// src/include/device.h, 2.28), but at most 64.
[[nodiscard]] int pieces_of(base::Bytes message);

/// Why it cannot be replayed on this cluster: a clause for people ("tree does no all_gather"). Empty if it can.
/// `operation`: the user's name for the goal.
[[nodiscard]] std::string why_not(const clusters::Cluster& cluster, const CollectiveCase& what,
                                  const std::string& operation);

struct CollectiveReplay {
  base::Seconds closed_form;         ///< one channel of one task, with the network to itself
  base::Seconds replay;              ///< until the last task has ended
  base::Seconds latency;             ///< the same for empty messages
  std::int64_t messages = 0;         ///< number that the replay represents
  std::vector<cost::LinkRow> links;  ///< class with the busiest link first; over the replay's time
  /// The bottleneck: "latency" if empty messages take more than half of the time, else the first class of links.
  [[nodiscard]] std::string binds() const;
  /// Its share of the replay's time: that of the latency, or the time that the busiest link moves bytes.
  [[nodiscard]] double bound_share() const;
};

/// `paths` and `fabric` belong to this cluster; why_not() must be empty.
[[nodiscard]] CollectiveReplay replay_collective(const clusters::Cluster& cluster, clusters::Paths& paths,
                                                 const Fabric& fabric, const CollectiveCase& what);

}  // namespace orrery::sim
