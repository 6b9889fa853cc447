// Groups repeated runs, and makes the parts of the report that come from them.
#include "apps/verbs/report/report_data.h"

#include <algorithm>
#include <cmath>

#include "reports/measured.h"
#include "sim/simulate.h"

namespace orrery::apps {
namespace {

cost::Pricing priced(const Run& run, const std::vector<cost::Calibration>& calibrations) {
  return cost::Pricing(std::make_shared<const clusters::Cluster>(run.loaded.file.cluster), run.loaded.stack,
                       calibrations);
}

sim::Simulation simulated(const Run& run, const std::vector<cost::Calibration>& calibrations, bool spans) {
  return sim::simulate(run.loaded.plan, run.schedule, priced(run, calibrations), {.spans = spans});
}

/// What the arena of the fullest stage holds: the worker measures that, not the memory of its process.
double arena_peak(const cost::Prediction& prediction) {
  double peak = 0;
  for (const cost::MemoryRow& row : prediction.memory) {
    const auto software = row.by_purpose.find("software");
    peak = std::max(peak, row.total - (software == row.by_purpose.end() ? 0 : software->second));
  }
  return peak;
}

/// A calibration says what it was fitted to; if one does not, the command line decides.
bool used_in_fit(const Run& run, const std::vector<cost::Calibration>& calibrations) {
  bool all_say = !calibrations.empty();
  for (const cost::Calibration& one : calibrations) {
    if (fitted_to(one, run)) return true;
    all_say = all_say && !one.fitted_to.empty();
  }
  return !all_say && !run.held_out;
}

void measure(Group& group, const Beliefs& beliefs) {
  const Run& first = *group.runs.front();
  std::vector<double> times, rates, memory;
  bool oversubscribed = false;
  for (const Run* run : group.runs) {
    times.push_back(run->timeline.step_time);
    std::vector<double> tokens;
    for (const Metric& metric : run->metrics) {
      if (metric.step > run->metrics.front().step || run->metrics.size() == 1) tokens.push_back(metric.tokens_per_s);
      memory.push_back(metric.memory_peak_bytes);
    }
    rates.push_back(median(tokens));
    oversubscribed = oversubscribed || run->timeline.oversubscribed;
  }
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  cost::MeasuredRun& m = group.measured;
  m.spec = first.loaded.file.spec;
  m.directory = first.directory;
  m.step_time_s = median(times);
  m.step_time_spread = m.step_time_s > 0 ? (*most - *least) / m.step_time_s : 0;
  m.memory_peak_bytes = memory.empty() ? 0 : *std::max_element(memory.begin(), memory.end());
  m.tokens_per_s = median(rates);
  m.samples = first.loaded.file.model.recommender.has_value();
  // A plan that the fit has seen once is not held out, however its later runs are marked.
  m.used_in_fit = std::any_of(group.runs.begin(), group.runs.end(),
                              [&](const Run* run) { return used_in_fit(*run, beliefs.after); });
  m.oversubscribed = oversubscribed;
  m.predicted_before_s = simulated(first, beliefs.before, false).prediction.step_time_s;
  group.predicted = simulated(first, beliefs.after, false).prediction;
  m.predicted_after_s = group.predicted.step_time_s;
  m.predicted_memory_bytes = arena_peak(group.predicted);
}

/// The repeated run whose step time is nearest to the group's median.
const Run& typical(const Group& group) {
  return **std::min_element(group.runs.begin(), group.runs.end(), [&](const Run* a, const Run* b) {
    return std::abs(a->timeline.step_time - group.measured.step_time_s) <
           std::abs(b->timeline.step_time - group.measured.step_time_s);
  });
}

/// For each stage the rank whose arena held most.
std::vector<reports::MeasuredMemory> memory_by_stage(const Run& run) {
  std::vector<reports::MeasuredMemory> stages;
  const std::vector<double>& by_rank = run.metrics.back().memory_by_rank_bytes;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const plan::StageId stage = run.loaded.plan.stage_of(static_cast<int>(rank));
    while (stages.size() <= stage.index()) stages.push_back({plan::StageId(stages.size()), 0});
    stages[stage.index()].bytes = std::max(stages[stage.index()].bytes, by_rank[rank]);
  }
  return stages;
}

}  // namespace

std::vector<Group> grouped(const std::vector<Run>& runs, const Beliefs& beliefs) {
  std::vector<Group> groups;
  for (const Run& run : runs) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      const Run& other = *group.runs.front();
      return other.loaded.file.spec == run.loaded.file.spec && other.loaded.file.model == run.loaded.file.model;
    });
    if (same == groups.end())
      groups.push_back({{&run}, {}, {}});
    else
      same->runs.push_back(&run);
  }
  for (Group& group : groups) measure(group, beliefs);
  return groups;
}

const Group& shown_of(const std::vector<Group>& groups) {
  return *std::min_element(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    const int ranks_a = a.measured.spec.mesh.ranks(), ranks_b = b.measured.spec.mesh.ranks();
    return ranks_a != ranks_b ? ranks_a > ranks_b : a.measured.step_time_s < b.measured.step_time_s;
  });
}

void show(reports::ReportData& data, const Group& group, const Beliefs& beliefs) {
  const Run& run = typical(group);
  sim::Simulation simulation = simulated(run, beliefs.after, true);
  data.prediction = std::move(simulation.prediction);
  data.predicted = std::move(simulation.timeline);
  data.run = group.measured;
  data.schedule = run.schedule;
  data.measured = run.timeline;
  data.measured_breakdown = reports::measured_breakdown(run.timeline, run.schedule);
  for (const Metric& metric : run.metrics) data.losses.push_back(metric.loss);
  if (run.metrics.empty()) return;
  data.measured_memory = memory_by_stage(run);
  data.expert_loads = run.metrics.back().expert_loads;
  data.table_caches = run.metrics.back().table_caches;
}

cost::FitResult fit_of(const std::vector<Run>& runs, const cost::Pricing& before, const cost::Pricing& after) {
  cost::FitResult result = cost::compare(fit_runs(runs), before, after, {});
  for (const auto& [name, parameter] : after.calibration().parameters) {
    const double old = before.calibration().get(name, 0);
    if (old != parameter.value)
      result.parameters.push_back({name, old, parameter.value, cost::name_of(parameter.unit), parameter.source});
  }
  return result;
}

}  // namespace orrery::apps
