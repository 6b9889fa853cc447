/// Chooses and times collectives; the tuner's formulas are in cost/network/nccl_tuner.cpp.
#include "cost/network/collectives.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "cost/network/nccl_tuner.h"

namespace orrery::cost {

using base::Bytes;
using base::Seconds;
using nccl::kMicro;

Network collective_network(const clusters::Cluster& cluster, const Calibration& c) {
  Network n;
  n.architecture = cluster.device().architecture;
  n.nvlink = cluster.intra.name != "pcie";
  if (cluster.shape) {
    n.cpu = cluster.shape->node.cpu;
    n.multicast = cluster.shape->node.multicast;
  }
  n.intra_bandwidth = cluster.intra.bandwidth.value;
  n.inter_latency = cluster.inter.latency.value;
  n.ll128 = c.at("network.inter.ll128") != 0;
  n.ll128_ramps = c.at("network.ll128.ramps") != 0;
  n.collnet = c.at("network.collnet") != 0;
  n.hierarchical = c.at("network.hierarchical") != 0;
  n.hop_latency = c.at("network.inter.hop_latency");
  n.simple_hop_latency = c.at("network.inter.simple_hop_latency");
  n.intra_efficiency = c.at("network.intra.efficiency");
  n.inter_efficiency = c.at("network.inter.efficiency");
  n.send_efficiency = c.at("network.send.efficiency");
  n.send_channel = c.at("network.send.channel_bandwidth");
  n.all_to_all_efficiency = c.at("network.all_to_all.efficiency");
  n.size_half = c.at("network.size_half");
  n.size_exponent = c.at("network.size_exponent");
  return n;
}

double time_of(const Network& n, const Choice& choice, double bytes) {
  if (bytes <= 0) return 0;
  const double loss = choice.ramp > 0 ? bytes / choice.ramp * std::pow(n.size_half / bytes, n.size_exponent) : 0;
  return choice.latency + bytes / choice.wire + loss;
}

std::vector<Choice> choices(const Network& network, Operation operation, const clusters::GroupSpan& span, int ranks,
                            Bytes message) {
  const nccl::Group group = nccl::group_of(network, span, ranks);
  if (operation == Operation::all_to_all) return nccl::exchanges(network, group, message.value);
  if (operation == Operation::send) {
    const double latency = send_time(network, span, Bytes{1}).value;
    const double rate = message.value / std::max(send_time(network, span, message).value - latency, kMicro * kMicro);
    return {{"send", nccl::kProtocols[nccl::simple], latency, rate, rate, 0}};
  }
  return nccl::reductions(network, group, operation, message.value);
}

Choice choose(const Network& network, Operation operation, const clusters::GroupSpan& span, int ranks, Bytes message,
              const std::string& algorithm) {
  std::vector<Choice> all = choices(network, operation, span, ranks, message);
  const auto named = [&](const Choice& c) { return c.algorithm == algorithm; };
  if (std::any_of(all.begin(), all.end(), named)) std::erase_if(all, std::not_fn(named));
  return *std::min_element(all.begin(), all.end(), [&](const Choice& a, const Choice& b) {
    return a.believed(message.value) < b.believed(message.value);
  });
}

Seconds collective_time(const Network& network, Operation operation, const clusters::GroupSpan& span, int ranks,
                        Bytes message) {
  if (ranks <= 1 || message.value <= 0) return Seconds{0};
  if (operation == Operation::send) return send_time(network, span, message);
  return Seconds{time_of(network, choose(network, operation, span, ranks, message), message.value)};
}

Seconds send_time(const Network& network, const clusters::GroupSpan& span, Bytes message) {
  if (message.value <= 0) return Seconds{0};
  const double base = nccl::kBaseRing[nccl::simple];
  if (!span.within_node) {
    const nccl::Group g = nccl::group_of(network, span, 2);
    return Seconds{(base + nccl::hop(network, g, nccl::kRingNet[nccl::simple], nccl::simple)) * kMicro +
                   message.value / (span.bandwidth.value * network.inter_efficiency)};
  }
  const double near = network.nvlink ? nccl::kRingNvlink[nccl::simple] : nccl::kRingPci[nccl::simple];
  double rate = span.bandwidth.value * network.send_efficiency;
  if (network.nvlink) {
    const double channels = std::clamp(message.value / (nccl::kSlot * nccl::kSlotsPerChannel), nccl::kSendChannelsLeast,
                                       nccl::kSendChannelsMost);
    rate = std::min(rate, channels * network.send_channel);
  }
  return Seconds{(base + near) * kMicro + message.value / rate};
}

double bus_factor(Operation operation, int ranks) {
  const double p = ranks;
  switch (operation) {
    case Operation::all_reduce: return 2 * (p - 1) / p;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all: return (p - 1) / p;
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::send: return 1;
  }
  return 1;
}

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::all_gather: return "all_gather";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::broadcast: return "broadcast";
    case Operation::reduce: return "reduce";
    case Operation::all_to_all: return "all_to_all";
    case Operation::send: return "send";
  }
  return "?";
}

}  // namespace orrery::cost
