#pragma once
/// Seconds of one message of a Schedule on a cluster, from when all its ranks are ready: finds how the group uses the
/// network, and applies the formula for that kind of cluster.
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "clusters/routes.h"
#include "cost/network/collectives.h"
#include "cost/parameters/calibration.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// A collective over `members` (two or more); `message` is the full vector, all ranks' parts together. Other groups of
/// the same shape are assumed to fill the rest of the cluster and to run at the same time.
[[nodiscard]] base::Seconds group_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                       plan::CollectiveKind kind, base::Bytes message, std::span<const int> members);

/// The network as seen by a group while other groups of the same shape run at the same time.
[[nodiscard]] clusters::GroupSpan shared_span(const clusters::Cluster& cluster, std::span<const int> members);

/// One message from a rank to another.
[[nodiscard]] base::Seconds message_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                         base::Bytes message, int from, int to);

/// The two neighbours in a ring over `members` with the slowest message; they are on two nodes if any neighbours are.
[[nodiscard]] std::vector<int> slowest_hop(const clusters::Cluster& cluster, std::span<const int> members);

/// The same messages with the network to themselves, for a replay in which links are shared explicitly: first
/// `latency`, which loads no link, then `transfer` at the algorithm's own rate.
struct Alone {
  base::Seconds latency, transfer;
  bool in_switch = false;  ///< the node's switches reduce and multicast (NVLS)
  bool tree = false;       ///< trees over the nodes; false: rings
  double stretch = 1;      ///< factor by which the stack prolongs the transfer; links are occupied for as long
  [[nodiscard]] base::Seconds total() const { return latency + transfer; }
};
/// `span`: what the group sees, clusters::span_of(cluster, members); for a ring shift, what its slowest hop sees. CPU
/// ranks ignore `span`, and all is latency.
[[nodiscard]] Alone group_alone(const clusters::Cluster& cluster, const Calibration& calibration,
                                plan::CollectiveKind kind, base::Bytes message, const clusters::GroupSpan& span,
                                int ranks);
[[nodiscard]] Alone message_alone(const clusters::Cluster& cluster, const Calibration& calibration, base::Bytes message,
                                  const clusters::GroupSpan& span);
/// Bytes/s that all transfers together achieve in one direction of a link: the datasheet's, times the calibrated
/// efficiency of large collectives on that kind of link.
[[nodiscard]] base::BytesPerSecond shared_capacity(const Calibration& calibration, clusters::LinkKind kind,
                                                   base::BytesPerSecond bandwidth);

/// Algorithm and time of one collective alone: no other group uses the network.
struct CollectivePrice {
  std::string algorithm;  ///< as in Choice; CPU ranks: "halving-doubling", "scatter-gather", "pairwise", "send"
  std::string protocol;   ///< CPU ranks: "MPI"
  base::Seconds time;
};
/// `algorithm`: forced, if there is one of that name.
[[nodiscard]] CollectivePrice price_of(const clusters::Cluster& cluster, const Calibration& calibration,
                                       Operation operation, base::Bytes message, std::span<const int> members,
                                       const std::string& algorithm = {});

/// CPU ranks over MPI, p of them: latency of the rounds plus the bytes through one rank in recursive halving and
/// doubling (Thakur, Rabenseifner, Gropp 2005, sections 4.1, 4.2 and 4.5). All-gather and reduce-scatter take ceil(log2
/// p) rounds and (p-1)/p of the vector, all-reduce twice as much. A ring shift is one message per rank.
[[nodiscard]] base::Seconds mpi_collective_time(const Calibration& calibration, plan::CollectiveKind kind,
                                                base::Bytes message, int ranks);
/// The other operations from the same coefficients: broadcast is a scatter and an all-gather, (ceil(log2 p) + p - 1)
/// rounds and twice (p-1)/p of the vector; reduce is a reduce-scatter and a gather, with twice the rounds and bytes of
/// a reduce-scatter (sections 4.3, 4.4); all-to-all takes p-1 rounds with 1/p of the vector each.
[[nodiscard]] base::Seconds mpi_operation_time(const Calibration& calibration, Operation operation, base::Bytes message,
                                               int ranks);
[[nodiscard]] base::Seconds mpi_send_time(const Calibration& calibration, base::Bytes message);

}  // namespace orrery::cost
