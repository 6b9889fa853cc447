#pragma once
/// Seconds of one message of a Schedule on a cluster, from the moment all its ranks are ready: finds out what the group
/// sees of the network, and asks the formula for that kind of cluster.
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
/// the same shape fill the rest of the cluster and run at the same time.
[[nodiscard]] base::Seconds group_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                       plan::CollectiveKind kind, base::Bytes message, std::span<const int> members);

/// What a group sees of the network while other groups of the same shape run at the same time.
[[nodiscard]] clusters::Span shared_span(const clusters::Cluster& cluster, std::span<const int> members);

/// One message from a rank to another.
[[nodiscard]] base::Seconds message_time(const clusters::Cluster& cluster, const Calibration& calibration,
                                         base::Bytes message, int from, int to);

/// The two neighbours in a ring over `members` between which a message takes longest: on two nodes, if there are such.
[[nodiscard]] std::vector<int> slowest_hop(const clusters::Cluster& cluster, std::span<const int> members);

/// The same messages with the network to themselves, for a replay in which sharing comes of the links: first `latency`,
/// in which nothing is loaded, then `transfer` at the algorithm's own rate.
struct Alone {
  base::Seconds latency, transfer;
  bool in_switch = false;  ///< the node's switches reduce and multicast (NVLS)
  bool tree = false;       ///< trees over the nodes, else rings
  double stretch = 1;      ///< of the transfer by the stack, for which links are taken as long
  [[nodiscard]] base::Seconds total() const { return latency + transfer; }
};
/// `span`: what the group sees, clusters::span_of(cluster, members); of a ring shift what its slowest hop sees. On CPU
/// ranks `span` is not asked and all is latency.
[[nodiscard]] Alone group_alone(const clusters::Cluster& cluster, const Calibration& calibration,
                                plan::CollectiveKind kind, base::Bytes message, const clusters::Span& span, int ranks);
[[nodiscard]] Alone message_alone(const clusters::Cluster& cluster, const Calibration& calibration, base::Bytes message,
                                  const clusters::Span& span);
/// Bytes/s that transfers together get out of one direction of a link: its datasheet's, times what the calibration says
/// large collectives reach on that kind.
[[nodiscard]] base::BytesPerSecond shared_capacity(const Calibration& calibration, clusters::LinkKind kind,
                                                   base::BytesPerSecond bandwidth);

/// What is done and how long it takes, for whoever asks about one collective alone: no other group uses the network.
struct CollectivePrice {
  std::string algorithm;  ///< as in Choice; CPU ranks: "halving-doubling", "scatter-gather", "pairwise", "send"
  std::string protocol;   ///< CPU ranks: "MPI"
  base::Seconds time;
};
/// `algorithm`: forced, where there is one of that name.
[[nodiscard]] CollectivePrice price_of(const clusters::Cluster& cluster, const Calibration& calibration,
                                       Operation operation, base::Bytes message, std::span<const int> members,
                                       const std::string& algorithm = {});

/// CPU ranks over MPI, p of them. Latency of the rounds and bytes through one rank of recursive halving and doubling
/// (Thakur, Rabenseifner, Gropp 2005, sections 4.1, 4.2 and 4.5): all-gather and reduce-scatter ceil(log2 p) rounds and
/// (p-1)/p of the vector, all-reduce twice both. A ring shift is one message for each rank.
[[nodiscard]] base::Seconds mpi_collective_time(const Calibration& calibration, plan::CollectiveKind kind,
                                                base::Bytes message, int ranks);
/// The other operations from the same coefficients: broadcast is a scatter and an all-gather, (ceil(log2 p) + p - 1)
/// and twice (p-1)/p of the vector; reduce a reduce-scatter and a gather, twice its rounds and its vector
/// (sections 4.3, 4.4); all-to-all p-1 rounds of a p-th each.
[[nodiscard]] base::Seconds mpi_operation_time(const Calibration& calibration, Operation operation, base::Bytes message,
                                               int ranks);
[[nodiscard]] base::Seconds mpi_send_time(const Calibration& calibration, base::Bytes message);

}  // namespace orrery::cost
