#pragma once
/// One collective by one algorithm on the links of a cluster: in closed form on an idle graph
/// (cost/network/algorithms.h), and replayed message by message (sim/replay_transfers.h), alone or several at once; and
/// which links that takes. Datasheet bandwidths and latencies, no library's tuning.
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/paths.h"
#include "cost/results.h"
#include "plan/transfers/transfers.h"
#include "sim/fabric.h"

namespace orrery::sim {

/// A group of devices in the order of its members, those of a node behind each other, equally many in each.
using Members = std::vector<int>;

/// `devices` dealt out to `tasks` groups in turn: as ranks of data parallelism are, `tasks` tensor-parallel ranks side
/// by side. Empty where groups would not be alike: of a node's devices `tasks` is no divisor and no multiple, or of
/// all.
[[nodiscard]] std::vector<Members> dealt_out(const clusters::Cluster& cluster, const Members& devices, int tasks);

struct CollectiveCase {
  plan::Algorithm algorithm = plan::Algorithm::ring;
  plan::Goal goal = plan::Goal::all_reduce;
  std::vector<Members> tasks;  ///< each does the collective, all from the same moment on
  base::Bytes message;         ///< of each task; as cost::collective_time takes it
  int pieces = 1;              ///< where the algorithm sends pieces that follow each other
  /// The message in so many parts, each by the algorithm over the members in another order: the next device of each
  /// node is the first, on a ring the last of every other node. So other NICs carry it, as those of a library's
  /// channels do. A root stays.
  int channels = 1;
};

/// In how many pieces by default: of 512 KiB, NCCL's buffer of 4 MiB in 8 steps (NCCL_BUFFSIZE, NCCL_STEPS of
/// src/include/device.h, 2.28), at most 64.
[[nodiscard]] int pieces_of(base::Bytes message);
/// Whether this algorithm cuts the message into pieces for that.
[[nodiscard]] bool has_pieces(plan::Algorithm algorithm, plan::Goal goal);

/// Why it cannot be replayed on this cluster: a clause for people ("tree does no all_gather"). Empty: it can.
/// `operation`: the goal as the user calls it.
[[nodiscard]] std::string why_not(const clusters::Cluster& cluster, const CollectiveCase& what,
                                  const std::string& operation);

struct CollectiveReplay {
  base::Seconds closed_form;         ///< of one channel of one task, with the network to itself
  base::Seconds replay;              ///< until the last task has ended
  base::Seconds latency;             ///< the same with nothing in the messages
  std::int64_t messages = 0;         ///< that the replay stands for
  std::vector<cost::LinkRow> links;  ///< the class with the busiest link first; of the replay's time
  /// What binds: "latency" where messages with nothing in them take more than half of the time, else the first class.
  [[nodiscard]] std::string binds() const;
  /// The share of the replay's time that this is: of the latency, or that the busiest link moves bytes.
  [[nodiscard]] double bound_share() const;
};

/// `paths` and `fabric` of this cluster; why_not() is empty.
[[nodiscard]] CollectiveReplay replay_collective(const clusters::Cluster& cluster, clusters::Paths& paths,
                                                 const Fabric& fabric, const CollectiveCase& what);

}  // namespace orrery::sim
