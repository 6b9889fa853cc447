#pragma once
/// Seconds of one message of a Schedule on a cluster, from the moment all its ranks are ready: finds out what the group
/// sees of the network, and asks the formula for that kind of cluster.
#include <span>

#include "base/units.h"
#include "clusters/cluster.h"
#include "cost/calibration.h"
#include "plan/schedule.h"

namespace orrery::cost {

/// A collective over `members` (two or more); `message` is the full vector, all ranks' parts together. Other groups of
/// the same shape fill the rest of the cluster and run at the same time.
[[nodiscard]] base::Seconds group_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                       plan::CollectiveKind kind, base::Bytes message, std::span<const int> members);

/// One message from a rank to another.
[[nodiscard]] base::Seconds message_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                         base::Bytes message, int from, int to);

/// CPU ranks over MPI, p of them. Latency of the rounds and bytes through one rank of recursive halving and doubling
/// (Thakur, Rabenseifner, Gropp 2005, sections 4.1, 4.2 and 4.5): all-gather and reduce-scatter ceil(log2 p) rounds and
/// (p-1)/p of the vector, all-reduce twice both.
[[nodiscard]] base::Seconds mpi_collective_time(const Calibration& calibration, plan::CollectiveKind kind,
                                                base::Bytes message, int ranks);
[[nodiscard]] base::Seconds mpi_send_time(const Calibration& calibration, base::Bytes message);

}  // namespace orrery::cost
