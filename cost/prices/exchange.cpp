/// Two hops, and which parts of a layer are its experts.
#include "cost/prices/exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cost/network/nccl_tuner.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/partners.h"

namespace orrery::cost {

namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;

/// The probability that `draws` out of `all`, without replacement, hit none of `some`.
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

/// The probability that a token goes to one particular node of `nodes`.
double goes_to(const TokenChoice& c, int nodes) {
  const auto experts = static_cast<double>(c.experts), n = static_cast<double>(nodes);
  if (c.groups <= 1 || c.groups_chosen >= c.groups) return 1 - none_of(experts, experts / n, c.chosen);
  const double of_group = experts / static_cast<double>(c.groups);
  const double among = of_group * static_cast<double>(c.groups_chosen);
  if (nodes > c.groups) {  // a group spans several nodes
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

TokenChoice choice_of(const std::vector<models::Op>& ops) {
  for (const models::Op& op : ops)
    if (op.kind == models::OpKind::route) return {op.chosen, op.m, op.routing.groups, op.routing.groups_chosen};
  return {};
}

}  // namespace

TokenChoice choice_of(const models::LayerProgram& program) {
  for (const models::Part& part : program.forward)
    if (const TokenChoice choice = choice_of(part.ops); choice.any()) return choice;
  return {};
}

double other_nodes(const TokenChoice& choice, int nodes) {
  return nodes < 2 ? 0 : (nodes - 1) * goes_to(choice, nodes);
}

Alone two_hops(const Network& network, const clusters::GroupSpan& span, int ranks, base::Bytes message,
               const TokenChoice& choice) {
  if (ranks < 2 || message.value <= 0) return {};
  const nccl::Group g = nccl::group_of(network, span, ranks);
  const double inside = g.per_node;
  const double near = network.nvlink ? nccl::kRingNvlink[nccl::simple] : nccl::kRingPci[nccl::simple];
  const double far = g.nodes > 1 ? nccl::hop(network, g, nccl::kRingNet[nccl::simple], nccl::simple) : 0;
  const double within = inside > 1 ? (inside - 1) / inside / g.intra : 0;
  const double nic = g.nodes > 1 ? g.inter / inside * network.all_to_all_efficiency : 0;
  const double between = nic > 0 ? other_nodes(choice, g.nodes) / static_cast<double>(choice.chosen) / nic : 0;
  const double latency = nccl::kBaseRing[nccl::simple] + (inside > 1 ? near : 0) + far;
  return {base::Seconds{latency * kMicro}, base::Seconds{message.value / kGiga * std::max(within, between)}};
}

TokenExchange::TokenExchange(const Pricing& pricing, const TokenChoice& choice, int ways, int experts)
    : pricing_(&pricing), choice_(choice), ways_(static_cast<std::size_t>(ways)) {
  std::iota(ways_.begin(), ways_.end(), 0);
  if (!choice_.any()) return;
  bytes_ = pricing.calibration().get("stack.exchange_bytes", 0);
  own_rows_ = ways > 1 && experts > 1 && pricing.calibration().get("stack.exchange_own_rows", 0) != 0;
}

TokenExchange::Way TokenExchange::way(Leg leg, base::Bytes message, std::int64_t size) const {
  const bool there = leg == Leg::there;
  if (there && bytes_ > 0) message.value *= bytes_ / static_cast<double>(size);
  if (!own_rows_) return {message, base::Seconds{0}};
  const plan::CollectiveKind meets = there ? plan::CollectiveKind::all_gather : plan::CollectiveKind::reduce_scatter;
  return {base::Bytes{message.value / static_cast<double>(ways_.size())},
          pricing_->collective_time(meets, message, ways_, plan::Stream::exchange)};
}

ExchangeAlone exchange_alone(const Pricing& pricing, const clusters::GroupSpan& span, int ranks, base::Bytes message,
                             const TokenChoice& choice) {
  const clusters::Cluster& cluster = pricing.cluster();
  const bool gpu = cluster.device().kind != clusters::DeviceKind::cpu;
  if (!gpu || !choice.any() || pricing.calibration().get("stack.exchange_two_hop", 0) == 0)
    return {pricing.collective_alone(plan::CollectiveKind::all_to_all, message, span, ranks, plan::Stream::exchange)};
  ExchangeAlone out{two_hops(collective_network(cluster, pricing.calibration()), span, ranks, message, choice)};
  const int nodes = span.within_node ? 1 : span.nodes;
  const double copies = nodes > 1 ? static_cast<double>(nodes - 1) / nodes : 1;  // share that leaves the node
  if (nodes > 1) out.far = other_nodes(choice, nodes) / static_cast<double>(choice.chosen) / copies;
  return out;
}

bool hides_exchanges(const Pricing& pricing, const plan::PlanSpec& spec) {
  return pricing.calibration().get("stack.exchange_hidden", 0) > 0 && !plan::runs_beside(spec);
}

double exchange_taken(const Pricing& pricing, const plan::PlanSpec& spec, double paired) {
  const bool beside = plan::runs_beside(spec) && pricing.overlaps(plan::Stream::exchange);
  return beside ? paired * pricing.calibration().get("stack.exchange_compute", 0) : 0;
}

double exchange_left(const Pricing& pricing, double exchanges, double compute, double paired) {
  const double share = paired * pricing.calibration().get("stack.exchange_hidden", 0);
  if (exchanges <= 0 || share <= 0) return 1;
  const double taken = pricing.calibration().get("stack.exchange_compute", 0);
  return 1 - share * std::min(exchanges, compute) * (1 - taken) / exchanges;
}

TokenChoice choice_of(const plan::RankClass& stage) {
  for (const plan::Block& block : stage.blocks)
    for (const plan::Step& step : block.steps)
      if (const TokenChoice choice = choice_of(step.ops); choice.any()) return choice;
  return {};
}

TokenExchange exchange_of(const Pricing& pricing, const plan::Schedule& schedule, const plan::RankClass& stage) {
  const plan::PlanSpec& spec = schedule.spec;
  return {pricing, choice_of(stage), spec.mesh.routes_own_rows() ? 1 : spec.mesh.tensor, spec.mesh.expert};
}

std::vector<std::vector<std::optional<Leg>>> legs_of(const plan::RankClass& stage) {
  std::vector<std::vector<std::optional<Leg>>> out;
  const plan::Step* last = nullptr;
  Leg next = Leg::there;
  for (const plan::Block& block : stage.blocks) {
    std::vector<std::optional<Leg>>& legs = out.emplace_back(block.steps.size());
    for (std::size_t i = 0; i < legs.size(); ++i) {
      const plan::Step& step = block.steps[i];
      if (step.kind != plan::StepKind::collective || !step.counted.any()) continue;
      if (!last || last->layer != step.layer || last->phase != step.phase) next = Leg::there;
      legs[i] = std::exchange(next, next == Leg::there ? Leg::back : Leg::there);
      last = &step;
    }
    if (block.steps.empty() || last != &block.steps.back()) last = nullptr;
  }
  return out;
}

double exchange_left(const Pricing& pricing, const plan::Schedule& schedule, const plan::RankClass& stage) {
  if (!hides_exchanges(pricing, schedule.spec) || !choice_of(stage).any()) return 1;
  const TokenExchange exchange = exchange_of(pricing, schedule, stage);
  double exchanges = 0, compute = 0;  // per micro-batch
  const std::vector<std::vector<std::optional<Leg>>> all = legs_of(stage);
  for (std::size_t b = 0; b < all.size(); ++b) {
    const plan::Block& block = stage.blocks[b];
    const std::vector<std::optional<Leg>>& legs = all[b];
    if (block.variant_of >= 0) continue;
    for (std::size_t i = 0; i < legs.size(); ++i) {
      const plan::Step& step = block.steps[i];
      const bool passes = step.phase == plan::Phase::forward || step.phase == plan::Phase::recompute ||
                          step.phase == plan::Phase::backward;
      if (passes && step.kind == plan::StepKind::compute) compute += pricing.compute_time(step).value;
      if (!passes || step.collective != plan::CollectiveKind::all_to_all || step.stream != plan::Stream::exchange)
        continue;
      TokenExchange::Way way{base::Bytes{static_cast<double>(step.message_bytes(stage.buffers))}, base::Seconds{0}};
      if (legs[i]) way = exchange.way(*legs[i], way.across, value_size(stage, step));
      const std::vector<int> members = pricing.devices_of(plan::axes_of(pricing.cluster(), schedule.spec),
                                                          schedule.groups[step.group].members(stage.representative));
      exchanges += pricing.exchange_time(way.across, members, exchange.choice()).value + way.within.value;
    }
  }
  const plan::PlanSpec& spec = schedule.spec;
  return exchange_left(pricing, exchanges, compute, plan::paired_share(spec, stage.stage, spec.micro_batches()));
}

std::int64_t value_size(const plan::RankClass& stage, const plan::Step& step) {
  return models::size_of(stage.buffers[step.target.buffer].dtype);
}

}  // namespace orrery::cost
