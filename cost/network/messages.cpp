/// Message times: MPI between CPU ranks, otherwise the choice of formula.
#include "cost/network/messages.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/ensure.h"
#include "clusters/routes.h"
#include "cost/network/collectives.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;

namespace {

/// Extra seconds for the part of a message that exceeds the caches; 0 if not measured.
double spill(const Calibration& c, const std::string& name, Bytes message) {
  const double size = c.get("network.spill_size", 0), bandwidth = c.get(name + ".spill_bandwidth", 0);
  return size > 0 && bandwidth > 0 ? std::max(0.0, message.value - size) / bandwidth : 0;
}

}  // namespace

Seconds mpi_collective_time(const Calibration& c, plan::CollectiveKind kind, Bytes message, int ranks) {
  ENSURE(ranks >= 2, "a collective of {} ranks", ranks);
  if (kind == plan::CollectiveKind::ring_shift) return mpi_send_time(c, message);
  if (kind == plan::CollectiveKind::all_to_all) return mpi_operation_time(c, Operation::all_to_all, message, ranks);
  const double p = ranks;
  const double times = kind == plan::CollectiveKind::all_reduce ? 2 : 1;
  const double rounds = times * std::bit_width(static_cast<unsigned>(ranks - 1));
  const std::string name = std::string("network.") + plan::name_of(kind);
  return Seconds{rounds * c.at(name + ".latency") +
                 times * (p - 1) / p * (message.value / c.at(name + ".bandwidth") + spill(c, name, message))};
}

Seconds mpi_send_time(const Calibration& c, Bytes message) {
  return Seconds{c.at("network.send.latency") + message.value / c.at("network.send.bandwidth") +
                 spill(c, "network.send", message)};
}

Seconds mpi_operation_time(const Calibration& c, Operation operation, Bytes message, int ranks) {
  using plan::CollectiveKind;
  const double p = ranks, share = (p - 1) / p * message.value;
  const double rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  const auto at = [&](const char* name, const char* what) { return c.at(std::string("network.") + name + what); };
  switch (operation) {
    case Operation::all_reduce: return mpi_collective_time(c, CollectiveKind::all_reduce, message, ranks);
    case Operation::all_gather: return mpi_collective_time(c, CollectiveKind::all_gather, message, ranks);
    case Operation::reduce_scatter: return mpi_collective_time(c, CollectiveKind::reduce_scatter, message, ranks);
    case Operation::broadcast:
      return Seconds{(rounds + p - 1) * at("all_gather", ".latency") + 2 * share / at("all_gather", ".bandwidth")};
    case Operation::reduce:
      return Seconds{2 * (rounds * at("reduce_scatter", ".latency") + share / at("reduce_scatter", ".bandwidth"))};
    case Operation::all_to_all: return Seconds{(p - 1) * at("send", ".latency") + share / at("send", ".bandwidth")};
    case Operation::send: return mpi_send_time(c, message);
  }
  return {};
}

namespace {

bool is_cpu(const clusters::Cluster& cluster) {
  return cluster.device().kind == clusters::DeviceKind::cpu;
}

Operation operation_of(plan::CollectiveKind kind) {
  switch (kind) {
    case plan::CollectiveKind::all_reduce: return Operation::all_reduce;
    case plan::CollectiveKind::all_gather: return Operation::all_gather;
    case plan::CollectiveKind::reduce_scatter: return Operation::reduce_scatter;
    case plan::CollectiveKind::ring_shift: return Operation::send;
    case plan::CollectiveKind::all_to_all: return Operation::all_to_all;
  }
  return Operation::all_reduce;
}

}  // namespace

std::vector<int> slowest_hop(const clusters::Cluster& cluster, std::span<const int> members) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int from = members[i], to = members[(i + 1) % members.size()];
    if (cluster.node_of(from) != cluster.node_of(to)) return {std::min(from, to), std::max(from, to)};
  }
  return {std::min(members[0], members[1]), std::max(members[0], members[1])};
}

/// A shift around a ring is as slow as its hop between nodes, if any; the other rings of the cluster cross there at the
/// same time.
Seconds shift_time(const clusters::Cluster& cluster, const Calibration& c, Bytes message,
                   std::span<const int> members) {
  const std::vector<int> hop = slowest_hop(cluster, members);
  clusters::GroupSpan span = clusters::span_of(cluster, hop);
  if (!span.within_node) {
    const auto on_node = std::count_if(members.begin(), members.end(),
                                       [&](int m) { return cluster.node_of(m) == cluster.node_of(hop.front()); });
    span = clusters::span_of(cluster, hop, std::max(1, cluster.devices_per_node / static_cast<int>(on_node)));
  }
  return send_time(collective_network(cluster, c), span, message);
}

clusters::GroupSpan shared_span(const clusters::Cluster& cluster, std::span<const int> members) {
  const std::vector<int> list(members.begin(), members.end());
  if (cluster.shape && cluster.shape->node.fabric == clusters::NodeFabric::torus)
    return clusters::span_of(cluster, list, 2);
  const clusters::GroupSpan span = clusters::span_of(cluster, list);
  const int sharing = std::max(1, cluster.devices_per_node / std::max(1, span.per_node));
  return span.within_node || sharing == 1 ? span : clusters::span_of(cluster, list, sharing);
}

Seconds group_time(const clusters::Cluster& cluster, const Calibration& c, plan::CollectiveKind kind, Bytes message,
                   std::span<const int> members) {
  const auto ranks = static_cast<int>(members.size());
  if (is_cpu(cluster)) return mpi_collective_time(c, kind, message, ranks);
  if (kind == plan::CollectiveKind::ring_shift) return shift_time(cluster, c, message, members);
  return collective_time(collective_network(cluster, c), operation_of(kind), shared_span(cluster, members), ranks,
                         message);
}

CollectivePrice price_of(const clusters::Cluster& cluster, const Calibration& c, Operation operation, Bytes message,
                         std::span<const int> members, const std::string& algorithm) {
  const auto ranks = static_cast<int>(members.size());
  if (is_cpu(cluster)) {
    const char* way = operation == Operation::send                                          ? "send"
                      : operation == Operation::all_to_all                                  ? "pairwise"
                      : operation == Operation::broadcast || operation == Operation::reduce ? "scatter-gather"
                                                                                            : "halving-doubling";
    return {way, "MPI", mpi_operation_time(c, operation, message, ranks)};
  }
  const Network network = collective_network(cluster, c);
  const clusters::GroupSpan span = clusters::span_of(cluster, std::vector<int>(members.begin(), members.end()));
  const Choice choice = choose(network, operation, span, ranks, message, algorithm);
  const double seconds =
      operation == Operation::send ? send_time(network, span, message).value : time_of(network, choice, message.value);
  return {choice.algorithm, choice.protocol, Seconds{seconds}};
}

Seconds message_time(const clusters::Cluster& cluster, const Calibration& c, Bytes message, int from, int to) {
  if (is_cpu(cluster)) return mpi_send_time(c, message);
  const std::vector<int> pair = {std::min(from, to), std::max(from, to)};
  clusters::GroupSpan span = clusters::span_of(cluster, pair);
  if (!span.within_node) span = clusters::span_of(cluster, pair, cluster.devices_per_node);
  return send_time(collective_network(cluster, c), span, message);
}

Alone group_alone(const clusters::Cluster& cluster, const Calibration& c, plan::CollectiveKind kind, Bytes message,
                  const clusters::GroupSpan& span, int ranks) {
  if (kind == plan::CollectiveKind::ring_shift) return message_alone(cluster, c, message, span);
  if (is_cpu(cluster)) return {mpi_collective_time(c, kind, message, ranks), Seconds{0}};
  const Network network = collective_network(cluster, c);
  const Operation operation = operation_of(kind);
  const Seconds total = collective_time(network, operation, span, ranks, message);
  const Choice chosen = choose(network, operation, span, ranks, message);
  const Seconds latency{std::min(chosen.latency, total.value)};
  return {latency, total - latency, chosen.algorithm.starts_with("nvls"), chosen.algorithm.ends_with("tree")};
}

Alone message_alone(const clusters::Cluster& cluster, const Calibration& c, Bytes message,
                    const clusters::GroupSpan& span) {
  if (is_cpu(cluster)) return {mpi_send_time(c, message), Seconds{0}};
  const Network network = collective_network(cluster, c);
  const Seconds total = send_time(network, span, message);
  const Seconds latency = std::min(total, send_time(network, span, Bytes{1}));  // of one byte: only latency
  return {latency, total - latency};
}

base::BytesPerSecond shared_capacity(const Calibration& c, clusters::LinkKind kind, base::BytesPerSecond bandwidth) {
  const bool within = kind == clusters::LinkKind::nvlink;
  return bandwidth * c.get(within ? "network.intra.efficiency" : "network.inter.efficiency", 1);
}

}  // namespace orrery::cost
