// From a replay to a Prediction: totals per class become means over ranks, rows per dimension, bytes per link class.
#include "sim/simulate.h"

#include <algorithm>
#include <map>

#include "base/ensure.h"
#include "clusters/routes.h"
#include "cost/estimate.h"
#include "models/counts.h"
#include "plan/check.h"
#include "plan/lower.h"
#include "plan/place.h"
#include "sim/replay.h"

namespace orrery::sim {

namespace {

using plan::RankClass;
using plan::Schedule;
using plan::Step;
using plan::StepKind;

double seconds(Picoseconds t) {
  return static_cast<double>(t) * 1e-12;
}

// nccl-tests' definition: what each rank's link must carry, per second (PERFORMANCE.md of nccl-tests).
double bus_factor(const Step& step, int ranks) {
  const double n = ranks;
  switch (step.kind) {
    case StepKind::collective:
      return step.collective == plan::CollectiveKind::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
    case StepKind::send:
    case StepKind::recv: return 1;
    case StepKind::compute: return 0;
  }
  return 0;
}

class Summary {
 public:
  Summary(const plan::Plan& plan, const Schedule& schedule, const cost::Pricing& pricing, const Replay& replay)
      : plan_(plan), schedule_(schedule), pricing_(pricing), replay_(replay) {}

  cost::Prediction prediction() {
    cost::Prediction p;
    p.spec = plan_.spec();
    p.step_time_s = seconds(replay_.makespan) + pricing_.step_overhead().value;
    times(p);
    memory(p);
    messages(p);
    cost::derive(p, plan_);
    return p;
  }

 private:
  void times(cost::Prediction& p) const {
    const double classes = static_cast<double>(replay_.classes.size());
    cost::Breakdown& b = p.breakdown;
    for (const ClassTotals& c : replay_.classes) {
      const auto compute = [&](plan::Phase phase) {
        return seconds(c.compute[static_cast<std::size_t>(phase)]) / classes;
      };
      const auto exposed = [&](plan::Stream stream) {
        return seconds(c.exposed[static_cast<std::size_t>(stream)]) / classes;
      };
      b.forward += compute(plan::Phase::forward) + compute(plan::Phase::input);
      b.recompute += compute(plan::Phase::recompute);
      b.backward += compute(plan::Phase::backward);
      b.optimizer += compute(plan::Phase::optimizer) + compute(plan::Phase::gradient_reduce) +
                     compute(plan::Phase::parameter_gather) + compute(plan::Phase::reporting);
      b.tensor_communication += exposed(plan::Stream::tensor);
      b.data_communication += exposed(plan::Stream::data);
      b.pipeline_communication += exposed(plan::Stream::pipeline_send) + exposed(plan::Stream::pipeline_recv);
      b.bubble += seconds(c.bubble) / classes;
    }
    b.overhead = pricing_.step_overhead().value;
    p.bubble_fraction = p.step_time_s > 0 ? b.bubble / p.step_time_s : 0;
    p.exposed_communication_s = b.tensor_communication + b.data_communication + b.pipeline_communication;
  }

  void memory(cost::Prediction& p) const {
    for (const RankClass& c : schedule_.classes) {
      const plan::Placement placement = plan::place(c);
      cost::MemoryRow row;
      row.stage = c.stage;
      const double software = pricing_.software_memory().value;
      row.total = static_cast<double>(placement.arena_bytes) + software;
      for (std::size_t i = 0; i < placement.by_purpose.size(); ++i)
        if (placement.by_purpose[i] != 0)
          row.by_purpose[plan::name_of(static_cast<plan::Purpose>(i))] = static_cast<double>(placement.by_purpose[i]);
      row.by_purpose["fragmentation"] = static_cast<double>(placement.arena_bytes - placement.peak_live_bytes);
      if (software > 0) row.by_purpose["software"] = software;
      p.memory_peak_bytes = std::max(p.memory_peak_bytes, row.total);
      p.memory.push_back(std::move(row));
    }
  }

  struct Totals {
    std::int64_t count = 0;
    double bytes = 0, time = 0, exposed = 0, bus_bytes = 0;
  };

  void messages(cost::Prediction& p) const {
    std::map<std::pair<std::string, std::string>, Totals> rows;
    std::map<std::string, std::pair<double, double>> links;  // class -> (bytes of all ranks, most bytes of one rank)
    for (std::size_t i = 0; i < schedule_.classes.size(); ++i) {
      const RankClass& c = schedule_.classes[i];
      std::map<std::string, double> of_rank;
      for (std::size_t b = 0; b < c.blocks.size(); ++b)
        for (std::size_t s = 0; s < c.blocks[b].steps.size(); ++s) {
          const Step& step = c.blocks[b].steps[s];
          const ClassTotals::Message& m = replay_.classes[i].messages[b][s];
          if (step.kind == StepKind::compute || m.count == 0) continue;
          const bool collective = step.kind == StepKind::collective;
          const plan::Group* group = collective ? &schedule_.groups[static_cast<std::size_t>(step.group)] : nullptr;
          const double bytes = static_cast<double>(step.message_bytes(c.buffers)) * static_cast<double>(m.count);
          const double bus = bytes * bus_factor(step, group ? group->size() : 2);
          Totals& t = rows[{group ? group->name : "pipeline",
                            collective ? plan::name_of(step.collective) : plan::name_of(step.kind)}];
          t.count += m.count;
          t.bytes += bytes;
          t.time += seconds(m.time);
          t.exposed += seconds(m.exposed);
          t.bus_bytes += bus;
          if (step.kind != StepKind::recv) of_rank[link_class(c, step, group)] += bus;
        }
      for (const auto& [name, bytes] : of_rank) {
        links[name].first += bytes * c.count;
        links[name].second = std::max(links[name].second, bytes);
      }
    }
    rows_of(p, rows);
    links_of(p, links);
  }

  std::string link_class(const RankClass& c, const Step& step, const plan::Group* group) const {
    const int neighbour = c.representative + step.peer * plan_.spec().data * plan_.spec().tensor;
    const std::vector<int> members =
        group ? group->members(c.representative) : std::vector<int>{c.representative, neighbour};
    const clusters::Cluster& cluster = plan_.cluster();
    const int node = members.front() / cluster.devices_per_node;
    const bool within =
        std::all_of(members.begin(), members.end(), [&](int r) { return r / cluster.devices_per_node == node; });
    return within ? cluster.intra.name : cluster.inter.name;
  }

  // Per rank and step: means over the classes.
  void rows_of(cost::Prediction& p, const std::map<std::pair<std::string, std::string>, Totals>& rows) const {
    const double classes = static_cast<double>(schedule_.classes.size());
    for (const auto& [key, t] : rows) {
      cost::CommunicationRow row;
      row.dimension = key.first;
      row.operation = key.second;
      row.count = (t.count + static_cast<std::int64_t>(classes) - 1) / static_cast<std::int64_t>(classes);
      row.bytes = t.bytes / classes;
      row.time_s = t.time / classes;
      row.exposed_s = t.exposed / classes;
      row.bus_bandwidth = t.time > 0 ? t.bus_bytes / t.time : 0;
      p.communication.push_back(std::move(row));
    }
  }

  void links_of(cost::Prediction& p, const std::map<std::string, std::pair<double, double>>& links) const {
    const clusters::Cluster& cluster = plan_.cluster();
    for (const auto& [name, bytes] : links) {
      const double capacity =
          (name == cluster.intra.name ? cluster.intra : cluster.inter).bandwidth.value * p.step_time_s;
      cost::LinkRow row;
      row.name = name;
      row.bytes = bytes.first;
      if (capacity > 0) {
        row.mean_utilisation = bytes.first / (capacity * cluster.size());
        row.peak_utilisation = bytes.second / capacity;
      }
      p.links.push_back(std::move(row));
    }
  }

  const plan::Plan& plan_;
  const Schedule& schedule_;
  const cost::Pricing& pricing_;
  const Replay& replay_;
};

}  // namespace

Simulation simulate(const plan::Plan& plan, const Schedule& schedule, const cost::Pricing& pricing,
                    const SimulateOptions& options) {
  Replay replayed = replay(schedule, pricing, options.spans);
  Simulation result;
  result.prediction = Summary(plan, schedule, pricing, replayed).prediction();
  result.timeline.origin = plan::Origin::predicted;
  result.timeline.spec = plan.spec();
  result.timeline.spans = std::move(replayed.spans);
  result.timeline.step_time = result.prediction.step_time_s;
  return result;
}

Simulation simulate(const plan::Plan& plan, const cost::Pricing& pricing, const SimulateOptions& options) {
  const Schedule schedule = plan::lower(plan, {.recompute_whole_layer = pricing.stack().recompute_whole_layer});
  const base::Diagnostics faults = plan::check(schedule);
  ENSURE(faults.empty(), "the lowered schedule is unsound:\n{}", base::render(faults, false));
  return simulate(plan, schedule, pricing, options);
}

}  // namespace orrery::sim
