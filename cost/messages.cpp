/// Message times: MPI between CPU ranks, and the choice of formula for everything else.
#include "cost/messages.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/ensure.h"
#include "clusters/routes.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;

Seconds mpi_collective_time(const Calibration& c, plan::CollectiveKind kind, Bytes message, int ranks) {
  ENSURE(ranks >= 2, "a collective of {} ranks", ranks);
  const double p = ranks;
  const double times = kind == plan::CollectiveKind::all_reduce ? 2 : 1;
  const double rounds = times * std::bit_width(static_cast<unsigned>(ranks - 1));
  const std::string name = std::string("network.") + plan::name_of(kind);
  return Seconds{rounds * c.at(name + ".latency") + times * (p - 1) / p * message.value / c.at(name + ".bandwidth")};
}

Seconds mpi_send_time(const Calibration& c, Bytes message) {
  return Seconds{c.at("network.send.latency") + message.value / c.at("network.send.bandwidth")};
}

namespace {

bool is_cpu(const clusters::Cluster& cluster) {
  return cluster.device().kind == clusters::DeviceKind::cpu;
}

double efficiency(const Calibration& c, bool within_node) {
  return c.at(within_node ? "network.intra.efficiency" : "network.inter.efficiency");
}

}  // namespace

Seconds group_time(const clusters::Cluster& cluster, const Calibration& c, plan::CollectiveKind kind, Bytes message,
                   std::span<const int> members) {
  const auto ranks = static_cast<int>(members.size());
  if (is_cpu(cluster)) return mpi_collective_time(c, kind, message, ranks);
  const std::vector<int> list(members.begin(), members.end());
  clusters::Span span = clusters::span_of(cluster, list);
  const int sharing = std::max(1, cluster.devices_per_node / std::max(1, span.per_node));
  if (!span.within_node && sharing > 1) span = clusters::span_of(cluster, list, sharing);
  // Ring: p-1 rounds (twice for all-reduce), each passing 1/p of the vector (Patarasuk & Yuan 2009).
  const double p = ranks;
  const double rounds = (kind == plan::CollectiveKind::all_reduce ? 2 : 1) * (p - 1);
  const double bandwidth = span.bandwidth.value * efficiency(c, span.within_node);
  return Seconds{rounds * (span.latency.value + message.value / p / bandwidth)};
}

Seconds message_time(const clusters::Cluster& cluster, const Calibration& c, Bytes message, int from, int to) {
  if (is_cpu(cluster)) return mpi_send_time(c, message);
  const std::vector<int> pair = {std::min(from, to), std::max(from, to)};
  clusters::Span span = clusters::span_of(cluster, pair);
  if (!span.within_node) span = clusters::span_of(cluster, pair, cluster.devices_per_node);
  return Seconds{span.latency.value + message.value / (span.bandwidth.value * efficiency(c, span.within_node))};
}

}  // namespace orrery::cost
