/// Two hops, and what of a layer its experts are.
#include "cost/exchange.h"

#include <algorithm>
#include <cmath>

#include "cost/nccl_tuner.h"
#include "cost/pricing.h"

namespace orrery::cost {

namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;

/// The probability that `draws` of `all` without putting back are none of `some`.
double none_of(double all, double some, std::int64_t draws) {
  double p = 1;
  for (std::int64_t i = 0; i < draws; ++i) {
    const double left = all - static_cast<double>(i);
    p *= left > 0 ? std::max(0.0, left - some) / left : 0;
  }
  return p;
}

double choose(std::int64_t n, std::int64_t k) {
  if (k < 0 || k > n) return 0;
  double c = 1;
  for (std::int64_t i = 1; i <= k; ++i) c *= static_cast<double>(n - k + i) / static_cast<double>(i);
  return c;
}

TokenChoice choice_of(const models::Op& route) {
  return {route.chosen, route.m, route.routing.groups, route.routing.groups_chosen};
}

/// The probability that a token goes to one certain node of `nodes`.
double goes_to(const TokenChoice& c, int nodes) {
  const auto experts = static_cast<double>(c.experts), n = static_cast<double>(nodes);
  if (c.groups <= 1 || c.groups_chosen >= c.groups) return 1 - none_of(experts, experts / n, c.chosen);
  const double of_group = experts / static_cast<double>(c.groups);
  const double among = of_group * static_cast<double>(c.groups_chosen);
  if (nodes > c.groups) {  // a group is over several nodes
    const double share = static_cast<double>(c.groups_chosen) / static_cast<double>(c.groups);
    return share * (1 - none_of(among, experts / n, c.chosen));
  }
  const std::int64_t own = c.groups / nodes;
  double p = 0;
  for (std::int64_t j = 1; j <= std::min(own, c.groups_chosen); ++j)
    p += choose(own, j) * choose(c.groups - own, c.groups_chosen - j) / choose(c.groups, c.groups_chosen) *
         (1 - none_of(among, static_cast<double>(j) * of_group, c.chosen));
  return p;
}

}  // namespace

TokenChoice choice_of(const models::LayerProgram& program) {
  for (const models::Part& part : program.forward)
    for (const models::Op& op : part.ops)
      if (op.kind == models::OpKind::route) return choice_of(op);
  return {};
}

TokenChoice choice_of(const plan::RankClass& ranks) {
  for (const plan::Block& block : ranks.blocks)
    for (const plan::Step& step : block.steps)
      for (const models::Op& op : step.ops)
        if (op.kind == models::OpKind::route) return choice_of(op);
  return {};
}

double other_nodes(const TokenChoice& choice, int nodes) {
  return nodes < 2 ? 0 : (nodes - 1) * goes_to(choice, nodes);
}

base::Seconds two_hop_time(const Network& network, const clusters::Span& span, int ranks, base::Bytes message,
                           const TokenChoice& choice) {
  if (ranks < 2 || message.value <= 0) return base::Seconds{0};
  const nccl::Group g = nccl::group_of(network, span, ranks);
  const double inside = g.per_node;
  const double near = network.nvlink ? nccl::kRingNvlink[nccl::simple] : nccl::kRingPci[nccl::simple];
  const double far = g.nodes > 1 ? nccl::hop(network, g, nccl::kRingNet[nccl::simple], nccl::simple) : 0;
  const double within = inside > 1 ? (inside - 1) / inside / g.intra : 0;
  const double nic = g.nodes > 1 ? g.inter / inside * network.all_to_all_efficiency : 0;
  const double between = nic > 0 ? other_nodes(choice, g.nodes) / static_cast<double>(choice.chosen) / nic : 0;
  const double latency = nccl::kBaseRing[nccl::simple] + (inside > 1 ? near : 0) + far;
  return base::Seconds{latency * kMicro + message.value / kGiga * std::max(within, between)};
}

Alone exchange_alone(const Pricing& pricing, const TokenChoice& choice, base::Bytes message, const clusters::Span& span,
                     int ranks) {
  Alone plain =
      pricing.collective_alone(plan::CollectiveKind::all_to_all, message, span, ranks, plan::Stream::exchange);
  const bool gpu = pricing.cluster().device().kind == clusters::DeviceKind::gpu;
  if (!gpu || !choice.any() || pricing.calibration().get("stack.exchange_two_hop", 0) == 0 || plain.transfer.value <= 0)
    return plain;
  const double total =
      two_hop_time(collective_network(pricing.cluster(), pricing.calibration()), span, ranks, message, choice).value;
  const double transfer = std::max(0.0, total - plain.latency.value);
  plain.stretch *= transfer / plain.transfer.value;
  plain.transfer = base::Seconds{transfer};
  return plain;
}

std::vector<models::Part> parts_of_experts(const models::LayerProgram& program) {
  std::vector<models::Part> out;
  bool inside = false;
  for (const models::Part& part : program.forward) {
    if (inside) {
      out.push_back(part);
      continue;
    }
    for (std::size_t i = 0; i < part.ops.size() && !inside; ++i)
      if (part.ops[i].kind == models::OpKind::route) {
        models::Part rest = part;
        const auto router = static_cast<std::ptrdiff_t>(i > 0 ? i - 1 : 0);  // its product stands before it
        rest.ops.erase(rest.ops.begin(), rest.ops.begin() + router);
        out.push_back(std::move(rest));
        inside = true;
      }
  }
  return out;
}

double exchange_left(const Pricing& pricing, double exchanges, double compute) {
  const double share = pricing.calibration().get("stack.exchange_hidden", 0);
  if (exchanges <= 0 || share <= 0) return 1;
  const double taken = pricing.calibration().get("stack.exchange_compute", 0);
  return 1 - share * std::min(exchanges, compute) * (1 - taken) / exchanges;
}

}  // namespace orrery::cost
