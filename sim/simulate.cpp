// Turns a replay into a Prediction: totals per class become means over ranks, rows per dimension, bytes per link class.
#include "sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/ensure.h"
#include "cost/estimate/estimate.h"
#include "cost/parameters/habits.h"
#include "cost/prices/exchange.h"
#include "cost/prices/table_rows.h"
#include "models/layers/counts.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "plan/spec/placement.h"
#include "sim/links/fabric.h"
#include "sim/links/link_rows.h"
#include "sim/replay/replay.h"
#include "sim/replay/steady.h"

namespace orrery::sim {

namespace {

using plan::RankClass;
using plan::Schedule;
using plan::Step;
using plan::StepKind;

// nccl-tests' definition: the share of the message that each rank's link must carry (PERFORMANCE.md of nccl-tests).
double bus_factor(const Step& step, int ranks) {
  const double n = ranks;
  switch (step.kind) {
    case StepKind::collective:
      if (step.collective == plan::CollectiveKind::ring_shift) return 1;
      return step.collective == plan::CollectiveKind::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
    case StepKind::send:
    case StepKind::recv:
    case StepKind::copy: return 1;
    case StepKind::compute: return 0;
  }
  return 0;
}

class Summary {
 public:
  Summary(const plan::Plan& plan, const Schedule& schedule, const cost::Pricing& pricing, const Fabric* fabric,
          const Replay& replay, int job)
      : plan_(plan),
        schedule_(schedule),
        pricing_(pricing),
        cluster_(pricing.cluster()),
        fabric_(fabric),
        replay_(replay),
        job_(job) {
    for (const ClassReplay& c : replay.classes)
      if (c.job == job) classes_.push_back(&c);
  }

  cost::Prediction prediction() {
    cost::Prediction p;
    p.spec = plan_.spec();
    p.step_time_s = seconds(replay_.makespan[static_cast<std::size_t>(job_)]) + pricing_.step_overhead().value;
    times(p);
    memory(p);
    messages(p);
    if (fabric_) {
      links(p);
    } else {
      links_without_graph(p);
    }
    cost::derive(p, plan_);
    cost::describe_tables(p, plan_, pricing_);
    return p;
  }

 private:
  // Share of the ranks that belong to this class.
  [[nodiscard]] double weight(const ClassReplay& c) const {
    return static_cast<double>(c.count) / static_cast<double>(plan_.spec().mesh.ranks());
  }
  [[nodiscard]] const RankClass& rank_class(const ClassReplay& c) const { return schedule_.classes[c.stage]; }

  void times(cost::Prediction& p) const {
    cost::Breakdown& b = p.breakdown;
    const Picoseconds most = most_work();
    double fuller_compute = 0, fuller_messages = 0;
    for (const ClassReplay* c : classes_) {
      const auto compute = [&](plan::Phase phase) {
        return seconds(c->totals.compute[static_cast<std::size_t>(phase)]) * weight(*c);
      };
      const auto exposed = [&](plan::Stream stream) {
        return seconds(c->totals.exposed[static_cast<std::size_t>(stream)]) * weight(*c);
      };
      b.forward += compute(plan::Phase::forward) + compute(plan::Phase::input);
      b.recompute += compute(plan::Phase::recompute);
      b.backward += compute(plan::Phase::backward);
      b.optimizer += compute(plan::Phase::optimizer) + compute(plan::Phase::gradient_reduce) +
                     compute(plan::Phase::parameter_gather) + compute(plan::Phase::reporting);
      b.tensor_communication += exposed(plan::Stream::tensor) + exposed(plan::Stream::context);
      b.exchange_communication += exposed(plan::Stream::exchange);
      b.data_communication += exposed(plan::Stream::data);
      b.pipeline_communication += exposed(plan::Stream::pipeline_send) + exposed(plan::Stream::pipeline_recv);
      for (const plan::Stream stream :
           {plan::Stream::to_host, plan::Stream::from_host, plan::Stream::to_nvme, plan::Stream::from_nvme})
        b.copies += exposed(stream);
      const double waiting = seconds(c->totals.waiting);
      const double imbalance = cost::imbalance_of(waiting, seconds(work(*c)), seconds(most));
      b.contention += seconds(c->totals.contention) * weight(*c);
      b.imbalance += imbalance * weight(*c);
      b.bubble += (waiting - imbalance) * weight(*c);
      fuller_compute += seconds(c->totals.fuller_compute) * weight(*c);
      fuller_messages += seconds(c->totals.fuller_messages) * weight(*c);
    }
    b.overhead = pricing_.step_overhead().value;
    p.bubble_fraction = p.step_time_s > 0 ? (b.bubble + b.imbalance) / p.step_time_s : 0;
    p.exposed_communication_s = b.exposed() + fuller_messages;
    b.imbalance += fuller_compute + fuller_messages;
  }

  // What a rank has to do without others: its compute, and the messages within its stage's passes.
  [[nodiscard]] static Picoseconds work(const ClassReplay& c) {
    Picoseconds sum = c.totals.fuller_compute + c.totals.fuller_messages;
    for (const Picoseconds phase : c.totals.compute) sum += phase;
    for (const plan::Stream stream : {plan::Stream::tensor, plan::Stream::context, plan::Stream::exchange})
      sum += c.totals.exposed[static_cast<std::size_t>(stream)];
    return sum;
  }
  [[nodiscard]] Picoseconds most_work() const {
    Picoseconds most = 0;
    for (const ClassReplay* c : classes_) most = std::max(most, work(*c));
    return most;
  }

  void memory(cost::Prediction& p) const {
    // The arena is Orrery's; another framework's memory does not follow from a schedule.
    if (pricing_.stack().memory.stated && !plan_.model().recommender) {
      const auto model = std::shared_ptr<const models::Model>(std::shared_ptr<void>(), &plan_.model());
      p.memory = cost::Estimator(model, pricing_).memory(plan_);
      for (const cost::MemoryRow& row : p.memory) p.memory_peak_bytes = std::max(p.memory_peak_bytes, row.total);
      return;
    }
    for (const RankClass& c : schedule_.classes) {
      const plan::Placement placement = plan::sizes_of(c);
      cost::MemoryRow row;
      row.stage = c.stage;
      const double software = pricing_.software_memory().value;
      row.total = static_cast<double>(placement.arena_bytes) + software;
      for (std::size_t i = 0; i < placement.by_purpose.size(); ++i)
        if (placement.by_purpose[i] != 0)
          row.by_purpose[plan::name_of(static_cast<plan::Purpose>(i))] = static_cast<double>(placement.by_purpose[i]);
      row.by_purpose["fragmentation"] = static_cast<double>(placement.arena_bytes - placement.peak_live_bytes);
      if (software > 0) row.by_purpose["software"] = software;
      row.host = static_cast<double>(placement.host.arena_bytes);
      row.nvme = static_cast<double>(placement.nvme.arena_bytes);
      p.memory_peak_bytes = std::max(p.memory_peak_bytes, row.total);
      p.memory.push_back(std::move(row));
    }
  }

  struct Totals {
    double count = 0, bytes = 0, time = 0, exposed = 0, contention = 0, bus_bytes = 0;  // of the mean rank
  };

  // One row per dimension and operation, for the mean rank in one step.
  void messages(cost::Prediction& p) const {
    std::map<std::pair<std::string, std::string>, Totals> rows;
    for (const ClassReplay* c : classes_) {
      const RankClass& ranks = rank_class(*c);
      const double left = cost::exchange_left(pricing_, schedule_, ranks);
      for (std::size_t b = 0; b < ranks.blocks.size(); ++b)
        for (std::size_t s = 0; s < ranks.blocks[b].steps.size(); ++s) {
          const Step& step = ranks.blocks[b].steps[s];
          const RankTotals::Message& m = c->totals.messages[b][s];
          if (step.kind == StepKind::compute || m.count == 0) continue;
          const bool collective = step.kind == StepKind::collective;
          const plan::Group* group = collective ? &schedule_.groups[step.group] : nullptr;
          const double count = static_cast<double>(m.count) * weight(*c);
          const double bytes = pricing_.as_sent(step, ranks.buffers, schedule_.spec.numerics.precision).value * count;
          const bool copies = step.kind == StepKind::copy;
          Totals& t = rows[{group    ? group->name
                            : copies ? "offload"
                                     : "pipeline",
                            collective ? plan::name_of(step.collective)
                            : copies   ? plan::name_of(step.stream)
                                       : plan::name_of(step.kind)}];
          t.count += count;
          t.bytes += bytes;
          t.time += seconds(m.time) * weight(*c);
          t.exposed += seconds(m.exposed) * weight(*c);
          t.contention += seconds(m.contention) * weight(*c);
          double seen = collective ? pricing_.seen_share(step.collective, step.stream) : 1;
          if (collective && step.stream == plan::Stream::exchange) seen *= left;
          t.bus_bytes += seen * bytes * bus_factor(step, group ? group->size() : 2);
        }
    }
    for (const auto& [key, t] : rows) {
      cost::CommunicationRow row;
      row.dimension = key.first;
      row.operation = key.second;
      row.count = static_cast<std::int64_t>(std::ceil(t.count - 1e-6));
      row.bytes = t.bytes;
      row.time_s = t.time;
      row.exposed_s = t.exposed;
      row.contention_s = t.contention;
      row.bus_bandwidth = t.time > 0 ? t.bus_bytes / t.time : 0;
      p.communication.push_back(std::move(row));
    }
  }

  void links(cost::Prediction& p) const {
    std::vector<Carried> carried;
    const std::vector<double>& bytes = replay_.carried[static_cast<std::size_t>(job_)];
    for (std::size_t l = 0; l < bytes.size(); ++l) carried.push_back({replay_.links[l], bytes[l]});
    p.links = link_rows(*fabric_, cluster_, carried, p.step_time_s);
  }

  // CPU ranks share one memory: the link is each rank's part of it.
  void links_without_graph(cost::Prediction& p) const {
    double total = 0, most = 0;
    for (const ClassReplay* c : classes_) {
      double bytes = 0;
      const RankClass& ranks = rank_class(*c);
      for (std::size_t b = 0; b < ranks.blocks.size(); ++b)
        for (std::size_t s = 0; s < ranks.blocks[b].steps.size(); ++s) {
          const Step& step = ranks.blocks[b].steps[s];
          if (step.kind == StepKind::compute || step.kind == StepKind::recv || step.kind == StepKind::copy) continue;
          const int size = step.kind == StepKind::collective ? schedule_.groups[step.group].size() : 2;
          bytes += pricing_.as_sent(step, ranks.buffers, schedule_.spec.numerics.precision).value *
                   static_cast<double>(c->totals.messages[b][s].count) * bus_factor(step, size);
        }
      total += bytes * c->count;
      most = std::max(most, bytes);
    }
    const double capacity = cluster_.intra.bandwidth.value * p.step_time_s;
    if (total > 0 && capacity > 0)
      p.links.push_back({cluster_.intra.name, total, total / (capacity * cluster_.size()), most / capacity});
  }

  const plan::Plan& plan_;
  const Schedule& schedule_;
  const cost::Pricing& pricing_;
  const clusters::Cluster& cluster_;
  const Fabric* fabric_;
  const Replay& replay_;
  int job_;
  std::vector<const ClassReplay*> classes_;
};

}  // namespace

std::shared_ptr<const Fabric> fabric_of(const clusters::Cluster& cluster) {
  const bool cpu = cluster.device().kind == clusters::DeviceKind::cpu;
  return cpu || cluster.device_vertices.empty() ? nullptr : std::make_shared<const Fabric>(cluster);
}

std::vector<Simulation> simulate(std::span<const JobInCompany> jobs, const SimulateOptions& options) {
  ENSURE(!jobs.empty(), "no job to simulate");
  const clusters::Cluster& cluster = jobs.front().pricing->cluster();
  const std::shared_ptr<const Fabric> fabric = options.fabric ? options.fabric : fabric_of(cluster);
  std::vector<JobOnCluster> placed;
  std::vector<bool> taken(static_cast<std::size_t>(cluster.size()), false);
  for (const JobInCompany& job : jobs) {
    ENSURE(&job.pricing->cluster() == &cluster, "jobs in company are priced on one cluster");
    std::vector<int> devices = job.devices;
    if (devices.empty()) devices = plan::devices_of(cluster, plan::axes_of(cluster, job.schedule->spec));
    placed.push_back({job.schedule, job.pricing, std::move(devices), cost::mean_share(*job.plan)});
    for (int rank = 0; rank < job.schedule->spec.mesh.ranks(); ++rank) {
      const int device = placed.back().device(rank);
      ENSURE(device >= 0 && device < cluster.size() && !taken[static_cast<std::size_t>(device)],
             "device {} of {} runs two ranks or none", device, cluster.size());
      taken[static_cast<std::size_t>(device)] = true;
    }
  }
  const bool never_drains =
      std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return plan::is_asynchronous(*job.schedule); });
  ENSURE(!never_drains || jobs.size() == 1, "{} jobs in company, of which one has no first step", jobs.size());
  const ReplayOptions how{options.spans, options.every_rank, options.every_micro_batch, options.most_spans,
                          options.training_step};
  Replay replayed = never_drains ? steady_step(placed.front(), cluster, fabric.get(), how)
                                 : replay(placed, cluster, fabric.get(), how);
  std::vector<Simulation> results;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const int job = static_cast<int>(j);
    Simulation result;
    result.prediction =
        Summary(*jobs[j].plan, *jobs[j].schedule, *jobs[j].pricing, fabric.get(), replayed, job).prediction();
    if (!jobs[j].devices.empty()) result.prediction.on_torus.clear();  // it runs on these instead
    result.timeline.origin = plan::Origin::predicted;
    result.timeline.spec = jobs[j].plan->spec();
    result.timeline.spans = std::move(replayed.spans[j]);
    result.spans_left_out = replayed.spans_left_out;
    result.timeline.step_time = result.prediction.step_time_s;
    result.classes = static_cast<int>(
        std::count_if(replayed.classes.begin(), replayed.classes.end(), [&](const auto& c) { return c.job == job; }));
    results.push_back(std::move(result));
  }
  return results;
}

Simulation simulate(const plan::Plan& plan, const Schedule& schedule, const cost::Pricing& pricing,
                    const SimulateOptions& options) {
  const JobInCompany alone{&plan, &schedule, &pricing, {}};
  return std::move(simulate(std::span(&alone, 1), options).front());
}

Simulation simulate(const plan::Plan& plan, const cost::Pricing& pricing, const SimulateOptions& options) {
  const Schedule schedule = cost::lower_for(plan, pricing.stack());
  const base::Diagnostics faults = plan::check(schedule);
  ENSURE(faults.empty(), "the lowered schedule is unsound:\n{}", base::render(faults, false));
  return simulate(plan, schedule, pricing, options);
}

}  // namespace orrery::sim
