// A collective is one flow: its bytes are those of one connection, its limit is the rate at which it ends in the time
// of its price, and its shares are the connections that cross each link.
#include "sim/links/transfers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/ensure.h"
#include "base/index.h"
#include "sim/links/loads.h"

namespace orrery::sim {

namespace {

using base::at;

using plan::Step;
using plan::StepKind;

std::optional<plan::CollectiveKind> collective_of(const Step& step) {
  if (step.kind != StepKind::collective) return std::nullopt;
  return step.collective;
}

}  // namespace

Transfers::Transfers(std::span<const JobOnCluster> jobs, const Traffic& traffic, const Folded& folded,
                     const Fabric* fabric)
    : jobs_(jobs), traffic_(traffic), folded_(folded), fabric_(fabric) {
  for (const Folded::Links& links : folded.links) {
    const Direction& d = fabric->direction(links.representative);
    const base::BytesPerSecond capacity =
        cost::shared_capacity(jobs.front().pricing->calibration(), d.kind, base::BytesPerSecond{d.bandwidth});
    capacities_.push_back(capacity.value);
    network_.add_resource(capacity.value);
  }
}

cost::ExchangeAlone Transfers::exchange(const Step& step, const plan::RankClass& rank_class, const Communicator& c,
                                        std::optional<cost::Leg> leg, base::Bytes& message) {
  const JobOnCluster& job = jobs_[at(c.job)];
  const cost::TokenExchange rows = cost::exchange_of(*job.pricing, *job.schedule, rank_class);
  base::Seconds within{0};
  if (leg) {
    const cost::TokenExchange::Way way = rows.way(*leg, message, cost::value_size(rank_class, step));
    message = way.across;
    within = way.within;
  }
  const auto [left, fresh] = left_.try_emplace({c.job, rank_class.stage}, 1);
  if (fresh) left->second = cost::exchange_left(*job.pricing, *job.schedule, rank_class);
  cost::ExchangeAlone alone = cost::exchange_alone(*job.pricing, c.span, c.ranks, message, rows.choice());
  alone.price.latency = left->second * (alone.price.latency + within);
  alone.price.transfer = left->second * alone.price.transfer;
  alone.price.stretch *= left->second;
  return alone;
}

int Transfers::add(const Step& step, const plan::RankClass& rank_class, int communicators,
                   std::optional<cost::Leg> leg) {
  const Folded::Communicators& folded = folded_.communicators[at(communicators)];
  const Communicator& c = traffic_.communicators[at(folded.representative)];
  const cost::Pricing& pricing = *jobs_[at(c.job)].pricing;
  base::Bytes message = pricing.as_sent(step, rank_class.buffers, jobs_[at(c.job)].schedule->spec.numerics.precision);
  base::Seconds gather{0};
  const bool copies = step.kind == StepKind::copy;
  if (step.kind != StepKind::collective && !copies) {
    const plan::PlanSpec& spec = jobs_[at(c.job)].schedule->spec;
    const cost::Pricing::Boundary b =
        pricing.boundary(message, spec.mesh.tensor, !spec.mesh.shards_rows(), c.span.within_node);
    message = b.sent;
    gather = b.gather;
  }
  const bool exchanges = step.kind == StepKind::collective && step.stream == plan::Stream::exchange &&
                         step.collective == plan::CollectiveKind::all_to_all;
  const cost::ExchangeAlone rows = exchanges ? exchange(step, rank_class, c, leg, message) : cost::ExchangeAlone{};
  cost::Alone alone = exchanges ? rows.price
                      : copies  ? pricing.copy_alone(step.stream, message, step.accumulate)
                      : step.kind == StepKind::collective
                          ? pricing.collective_alone(step.collective, message, c.span, c.ranks, step.stream)
                          : pricing.send_alone(message, c.span);
  alone.latency += gather;
  Kind kind;
  kind.communicators = communicators;
  kind.latency = picoseconds(alone.latency);
  kind.total = picoseconds(alone.total());
  if (const Wiring wiring = wiring_of(step, alone); !folded.of(wiring).empty()) kind.wiring = wiring;
  kind.bytes = alone.stretch * message.value * sent_share(kind.wiring, collective_of(step), c.ranks) /
               c.wired(kind.wiring).connections;
  kind.far = rows.far;
  kind.mean = cost::share_of_message(step, jobs_[at(c.job)].mean);
  // A link to drives has the rate of the drives' faster direction.
  const clusters::Storage& drives = pricing.cluster().nvme;
  if (step.stream == plan::Stream::to_nvme && drives.write.value > 0)
    kind.heavier = std::max(1.0, drives.read / drives.write);
  if (step.stream == plan::Stream::from_nvme && drives.read.value > 0)
    kind.heavier = std::max(1.0, drives.write / drives.read);
  if (alone.in_switch) kind.inside = inside_switch(step.collective, c.span);
  if (!folded.of(kind.wiring).empty() && kind.bytes > 0 && kind.total > kind.latency)
    kind.path = path_of(kind, kind.bytes / (static_cast<double>(kind.total - kind.latency) * 1e-12));
  kinds_.push_back(kind);
  return static_cast<int>(kinds_.size()) - 1;
}

int Transfers::path_of(const Kind& kind, double most) {
  const Folded::Communicators& folded = folded_.communicators[at(kind.communicators)];
  const std::vector<Use>& uses = folded.of(kind.wiring);
  const auto own = [&](const Use& use) {
    return fabric_->direction(folded_.links[at(use.link)].representative).kind == clusters::LinkKind::nvlink;
  };
  Scales scales(kind.inside, kind.far);
  for (const Use& use : uses) scales.fit(own(use), use.count, capacities_[at(use.link)], most);
  scales.fill(kind.wiring);
  std::vector<Load> loads;
  for (const Use& use : uses)
    loads.push_back({use.link, use.times * use.count * (scales.of(own(use)) * (own(use) ? 1 : kind.heavier))});
  return network_.path(std::move(loads), most);
}

// Rates are rounded (steady_rate), so that a flow alone may end this much after its price without having waited.
Transfers::Idle Transfers::idle(int index) const {
  constexpr int kRateBits = 42;
  const Kind& kind = kinds_[at(index)];
  const auto transfer = static_cast<double>(kind.total - kind.latency);
  const Picoseconds rounding = kind.path < 0 ? 0 : 1 + (kind.total >> kRateBits);
  const Picoseconds mean = kind.latency + static_cast<Picoseconds>(std::llround(transfer * kind.mean));
  return {kind.total + rounding, kind.mean < 1 ? mean : kind.total + rounding};
}

void Transfers::start(Picoseconds now, int index, int tag) {
  Kind& kind = kinds_[at(index)];
  ++kind.started;
  if (kind.path < 0) {
    fixed_.push_back({now + kind.total, order_++, tag});
    std::push_heap(fixed_.begin(), fixed_.end(), std::greater<>());
    return;
  }
  const int flow = network_.start(now, kind.path, kind.bytes, kind.latency);
  if (tag_of_flow_.size() <= at(flow)) tag_of_flow_.resize(at(flow) + 1);
  tag_of_flow_[at(flow)] = tag;
}

std::optional<Picoseconds> Transfers::next() {
  std::optional<Picoseconds> time = network_.next();
  if (!fixed_.empty()) time = time ? std::min(*time, fixed_.front().time) : fixed_.front().time;
  return time;
}

const std::vector<int>& Transfers::advance(Picoseconds to) {
  ended_.clear();
  for (const FlowNetwork::Completion& c : network_.advance(to)) ended_.push_back(tag_of_flow_[at(c.flow)]);
  while (!fixed_.empty() && fixed_.front().time <= to) {
    std::pop_heap(fixed_.begin(), fixed_.end(), std::greater<>());
    ended_.push_back(fixed_.back().tag);
    fixed_.pop_back();
  }
  return ended_;
}

void Transfers::state(Picoseconds now, const std::function<std::int64_t(int)>& name,
                      std::vector<std::int64_t>& out) const {
  std::vector<Fixed> fixed = fixed_;
  std::sort(fixed.begin(), fixed.end(), [](const Fixed& a, const Fixed& b) { return b > a; });
  for (const Fixed& one : fixed) out.insert(out.end(), {one.time - now, name(one.tag)});
  network_.state([&](int flow) { return name(tag_of_flow_[at(flow)]); }, out);
}

std::vector<std::int64_t> Transfers::started() const {
  std::vector<std::int64_t> out;
  for (const Kind& kind : kinds_) out.push_back(kind.started);
  return out;
}

void Transfers::leap(Picoseconds by, const std::vector<std::int64_t>& before, std::int64_t times) {
  for (std::size_t k = 0; k < kinds_.size(); ++k) kinds_[k].started += (kinds_[k].started - before[k]) * times;
  for (Fixed& one : fixed_) one.time += by;
  network_.leap(by);
}

std::vector<double> Transfers::carried(int job) const {
  struct Moved {
    double elsewhere = 0, inside = 0;  // by one connection: in total, and on the devices' own links
  };
  std::array<std::vector<Moved>, kWirings> moved;
  for (auto& way : moved) way.resize(folded_.communicators.size());
  for (const Kind& kind : kinds_) {
    const double bytes = static_cast<double>(kind.started) * kind.bytes;
    Moved& m = moved[static_cast<std::size_t>(kind.wiring)][at(kind.communicators)];
    m.elsewhere += bytes;
    m.inside += bytes * kind.inside;
  }
  std::vector<double> bytes(traffic_.links.size(), 0);
  for (std::size_t i = 0; i < traffic_.communicators.size(); ++i) {
    const Communicator& c = traffic_.communicators[i];
    if (c.job != job) continue;
    for (std::size_t w = 0; w < kWirings; ++w) {
      const Moved& m = moved[w][at(folded_.class_of_communicator[i])];
      for (std::size_t u = c.wirings[w].first; u < c.wirings[w].last; ++u) {
        const int link = traffic_.uses[u].link;
        const bool own = fabric_->direction(traffic_.links[at(link)]).kind == clusters::LinkKind::nvlink;
        bytes[at(link)] += traffic_.uses[u].count * (own ? m.inside : m.elsewhere);
      }
    }
  }
  return bytes;
}

}  // namespace orrery::sim
