// Heading and rows of the table of plans.
#include "apps/verbs/plan/plan_rows.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "apps/interrupt.h"
#include "apps/plan_warnings.h"
#include "base/units.h"
#include "models/layers/counts.h"
#include "plan/spec/fields.h"
#include "sim/search/search.h"
#include "sim/simulate.h"

namespace orrery::apps {
namespace {

/// Fields for which the job lists several values: it asks to compare these.
std::vector<std::string> compared_in(const plan::Bounds& bounds) {
  std::vector<std::string> out;
  plan::for_each_field(plan::kChosenFields, [&](const auto& field) {
    using T = typename std::remove_cvref_t<decltype(field)>::Value;
    const auto& bound = field.of(bounds);
    if constexpr (requires { bound.front(); } && !plan::kIsRows<T> && !plan::kIsList<T>)
      if (bound.size() > 1) out.emplace_back(field.key);
  });
  return out;
}

/// Whether a prediction comes from a replay: only a replay knows the links. CPU ranks have none, and replaying them
/// again takes no time; recommendation models are always replayed.
bool is_replayed(const cost::Prediction& one) {
  return !one.links.empty() || !one.tables.empty();
}

/// Replays these plans on several threads; plans that are not reached stay empty.
std::vector<std::optional<cost::Prediction>> replayed(const std::vector<cost::Prediction>& plans,
                                                      const std::vector<std::size_t>& which, const LoadedJob& job,
                                                      const cost::Prices& all_prices) {
  std::vector<std::optional<cost::Prediction>> out(which.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    const auto fabric = sim::fabric_of(all_prices.named().cluster());
    const cost::Prices prices = all_prices;
    for (std::size_t i = next++; i < which.size() && !Interrupt::requested(); i = next++) {
      const auto made = plan::make_plan(job.model, job.cluster, plans[which[i]].spec);
      if (made) out[i] = sim::simulate(*made, prices.of(made->spec()), {.spans = false, .fabric = fabric}).prediction;
    }
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t t = 1; t < std::min(most, which.size()); ++t) threads.emplace_back(work);
  work();
  for (std::thread& one : threads) one.join();
  return out;
}

/// The first plan of each family, at most `top`.
std::vector<std::size_t> first_of_each(const std::vector<std::size_t>& family, std::size_t top) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < family.size() && out.size() < top; ++i)
    if (family[i] == i) out.push_back(i);
  return out;
}

/// Puts replayed plans first, best first, then the others in their order.
void rank(cost::SearchResult& result, const std::vector<bool>& is_final, plan::Objective objective) {
  std::vector<cost::Prediction> ranked, others;
  for (std::size_t i = 0; i < result.plans.size(); ++i)
    (is_final[i] ? ranked : others).push_back(std::move(result.plans[i]));
  std::stable_sort(ranked.begin(), ranked.end(), [&](const cost::Prediction& a, const cost::Prediction& b) {
    return sim::objective_of(a, objective) < sim::objective_of(b, objective);
  });
  std::move(others.begin(), others.end(), std::back_inserter(ranked));
  result.plans = std::move(ranked);
}

reports::Evidence evidence_of(const cost::Stack& stack, const clusters::Cluster& cluster, const models::Model& model,
                              const cost::Intervals& intervals, const std::vector<cost::Calibration>& calibrations) {
  reports::Evidence out;
  out.stack = stack.name;
  if (cluster.device().kind != clusters::DeviceKind::cpu) {
    const cost::Setting setting = cost::setting_of(cluster, model);
    out.one_node = cost::spread_of(intervals, stack, false, setting);
    out.several_nodes = cost::spread_of(intervals, stack, true, setting);
    out.word = cost::name_of(cost::basis_of(intervals, stack));
    out.text = cost::basis_text(intervals, stack, cluster.nodes > 1, false, setting);
    if (out.word == "uncalibrated" && out.several_nodes)
      out.text += "; intervals come from published runs of other software";
    return out;
  }
  const auto fitted = std::find_if(calibrations.rbegin(), calibrations.rend(), [&](const cost::Calibration& one) {
    return !one.fitted_to.empty() && (one.device.empty() || one.device == cluster.device().name);
  });
  if (fitted != calibrations.rend()) {
    out.word = "calibrated";
    out.text = fmt::format("calibration `{}`, fitted to {} on such cores", fitted->name,
                           base::count_of(std::ssize(fitted->fitted_to), "run"));
    return out;
  }
  const bool measured = std::any_of(cluster.sources.begin(), cluster.sources.end(),
                                    [](const std::string& s) { return s.find("--measure") != s.npos; });
  out.word = measured ? "calibrated" : "uncalibrated";
  out.text = measured ? "this machine's cores, as measured by `orrery probe --measure`"
                      : "nominal rates of cores: `orrery probe --measure -o here.yaml` measures this machine's";
  return out;
}

}  // namespace

reports::PlanHeading heading_of(const LoadedJob& job, const clusters::Cluster& cluster,
                                const cost::Intervals& intervals, const std::vector<cost::Calibration>& calibrations) {
  reports::PlanHeading h;
  h.model = job.model->name;
  h.parameters = static_cast<double>(models::parameters(*job.model));
  h.parameters_active = static_cast<double>(models::parameters_active(*job.model));
  h.parameters_trained = static_cast<double>(models::parameters_trained(*job.model));
  h.cluster = cluster.name;
  h.device = cluster.device().name;
  h.kind = cluster.device().kind;
  h.devices = cluster.size();
  h.nodes = cluster.nodes;
  h.devices_per_node = cluster.devices_per_node;
  h.memory_bytes = cluster.device().memory.value;
  h.peak_flops = cluster.peak(models::name_of(job.job.precision)).value;
  h.precision = models::name_of(job.job.precision);
  h.samples = job.model->recommender.has_value();
  h.software = plan::software_text(job.job.software);
  h.batch = job.job.batch;
  h.sequence = h.samples ? 1 : job.job.sequence;
  h.longest = takes_longest(job);
  h.evidence.clear();
  for (const cost::Stack& stack : job.stacks.all())
    h.evidence.push_back(evidence_of(stack, cluster, *job.model, intervals, calibrations));
  for (std::size_t zero = 0; zero < h.by_zero.size(); ++zero)
    h.by_zero.at(zero) = job.stacks.place_of(static_cast<int>(zero), cluster.nodes > 1);
  return h;
}

reports::PlanHeading heading_of(const LoadedPlan& loaded, const cost::Intervals& intervals,
                                const std::vector<cost::Calibration>& calibrations) {
  const LoadedJob job = job_of(loaded);
  return heading_of(job, *job.cluster, intervals, calibrations);
}

ShownPlans shown_plans(cost::SearchResult& result, const LoadedJob& job, const cost::Prices& prices,
                       const cost::Room& room, int top, bool all, Progress& progress) {
  const std::vector<std::string> compared = compared_in(job.job.bounds);
  const auto families_now = [&] {
    std::vector<std::size_t> family(result.plans.size());
    for (std::size_t i = 0; i < family.size(); ++i) family[i] = i;
    return all ? family : reports::families(result.plans, compared);
  };
  const auto most = static_cast<std::size_t>(top);
  std::vector<std::size_t> rows = first_of_each(families_now(), most);
  std::vector<bool> is_final(result.plans.size());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < is_final.size(); ++i) is_final[i] = is_replayed(result.plans[i]);
  if (!all && !result.interrupted)
    for (const std::size_t row : rows)
      if (!is_final[row]) open.push_back(row);
  if (!open.empty()) {
    progress.line("replaying one plan of each family");
    auto found = replayed(result.plans, open, job, prices);
    std::vector<bool> gone(result.plans.size());
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (!found[i]) continue;
      ++result.simulated;
      gone[open[i]] = found[i]->memory_peak_bytes > room.of(found[i]->spec);
      is_final[open[i]] = true;
      result.plans[open[i]] = std::move(*found[i]);
    }
    for (std::size_t i = gone.size(); i-- > 0;)
      if (gone[i]) {
        result.plans.erase(result.plans.begin() + static_cast<std::ptrdiff_t>(i));
        is_final.erase(is_final.begin() + static_cast<std::ptrdiff_t>(i));
      }
    rank(result, is_final, job.job.objective);
    rows = first_of_each(families_now(), most);
  }
  const std::vector<std::size_t> family = families_now();
  ShownPlans shown;
  shown.rows = rows;
  for (const std::size_t first : family) {
    const auto at = std::find(rows.begin(), rows.end(), first);
    shown.row_of.push_back(static_cast<std::size_t>(at - rows.begin()));
    if (at != rows.end()) ++shown.folded;
  }
  shown.folded -= rows.size();
  return shown;
}

}  // namespace orrery::apps
