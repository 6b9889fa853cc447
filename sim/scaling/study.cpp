/// The points of a scaling study.
#include "sim/scaling/study.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "clusters/read.h"
#include "models/layers/counts.h"
#include "sim/scaling/figures.h"
#include "sim/search/search.h"
#include "sim/simulate.h"

namespace orrery::sim {
namespace {

/// A size's best plan, or the reason why there is none.
struct Found {
  std::optional<cost::Prediction> best;
  std::string reason;
};

std::string reason_of(const cost::SearchResult& result) {
  std::pair<std::string, std::int64_t> most;
  for (const auto& [reason, count] : result.rejected)
    if (count > most.second) most = {reason, count};
  std::string out = fmt::format("none of {} plans is feasible", result.candidates);
  if (most.second > 0) out += fmt::format(": {} {}", most.second, most.first);
  if (!result.nearest.empty()) out += "; " + result.nearest.front();
  return out;
}

/// One job: makes its clusters and plans, each once.
class Sizes {
 public:
  Sizes(const StudyJob& job, const StudyOptions& options, std::vector<int> sizes)
      : job_(job), options_(options), sizes_(std::move(sizes)) {
    for (const int devices : sizes_) {
      auto size = clusters::resized(*job.cluster, devices);
      if (size)
        clusters_[devices] = std::make_shared<const clusters::Cluster>(std::move(*size));
      else if (refused.empty())
        refused = size.error();
      if (!size) reasons_[devices] = size.error().front().message;
    }
  }

  [[nodiscard]] const std::vector<int>& all() const { return sizes_; }
  [[nodiscard]] bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  [[nodiscard]] bool any() const { return !clusters_.empty(); }

  /// The job on this number of devices, with this batch.
  [[nodiscard]] std::optional<StudyJob> at(int devices, std::int64_t batch) const {
    const auto cluster = clusters_.find(devices);
    if (cluster == clusters_.end()) return std::nullopt;
    StudyJob one = job_;
    one.cluster = cluster->second;
    one.job.batch = batch;
    return one;
  }

  /// The batch at a size; weak scaling starts from the smallest size. 0 if it is not a whole number.
  [[nodiscard]] std::int64_t batch(cost::Scaling scaling, int devices) const {
    if (scaling == cost::Scaling::strong) return job_.job.batch;
    const std::int64_t all = job_.job.batch * devices;
    return all % sizes_.front() == 0 ? all / sizes_.front() : 0;
  }

  const Found& planned(int devices, std::int64_t batch) {
    const auto [place, fresh] = planned_.try_emplace({devices, batch});
    Found& found = place->second;
    if (!fresh) return found;
    const auto one = at(devices, batch);
    if (!one) {
      found.reason = reasons_[devices];
      return found;
    }
    const cost::Prices prices(one->cluster, one->stacks, options_.calibrations, options_.intervals);
    cost::SearchResult result =
        options_.plans ? options_.plans(*one, prices)
                       : search(one->model, one->cluster, one->job, prices, {.top = 1, .stop = options_.stop});
    if (result.plans.empty())
      found.reason = reason_of(result);
    else
      found.best = std::move(result.plans.front());
    return found;
  }

  /// One plan, unchanged.
  [[nodiscard]] Found of_plan(const std::optional<plan::PlanSpec>& spec, int devices, std::int64_t batch) const {
    const auto one = at(devices, batch);
    if (!one) return {std::nullopt, reasons_.at(devices)};
    if (!spec) return {std::nullopt, "the fixed plan does not divide " + base::count_of(devices, "device")};
    const auto made = plan::make_plan(one->model, one->cluster, *spec);
    if (!made) return {std::nullopt, "the fixed plan is not possible: " + made.error().front().message};
    const cost::Prices prices(one->cluster, one->stacks, options_.calibrations);
    Found found{simulate(*made, prices.of(made->spec()), {.spans = false}).prediction, {}};
    const double capacity = one->cluster->device().memory.value;
    if (found.best->memory_peak_bytes > capacity)
      return {std::nullopt,
              fmt::format("the fixed plan needs {} of a device's {}",
                          base::human(base::Bytes{found.best->memory_peak_bytes}), base::human(base::Bytes{capacity}))};
    return found;
  }

  base::Diagnostics refused;  ///< of the first size at which the cluster is not available

 private:
  const StudyJob& job_;
  const StudyOptions& options_;
  std::vector<int> sizes_;
  std::map<int, std::shared_ptr<const clusters::Cluster>> clusters_;
  std::map<int, std::string> reasons_;
  std::map<std::pair<int, std::int64_t>, Found> planned_;
};

/// Counts a study's progress.
struct Told {
  const StudyOptions& options;
  std::size_t done = 0, all = 0;
  void operator()(const StudyJob& job, int devices) {
    if (options.progress)
      options.progress(
          fmt::format("{} on {}, {}", job.model->name, job.cluster->name, base::count_of(devices, "device")), done,
          all);
    ++done;
  }
};

/// The reason for a size whose batch is not a whole number; such a size is not searched.
std::string no_batch(const StudyJob& job, int smallest, int devices) {
  return fmt::format("a batch of {} at {} is no whole number at {}", job.job.batch, base::count_of(smallest, "device"),
                     devices);
}

/// Each size's point when one plan is held: the best plan of the largest size for which it is possible at all sizes, or
/// otherwise at most of them.
std::vector<Found> held(Sizes& sizes, const StudyJob& job, cost::ScalingSeries& series, Told& told) {
  std::vector<Found> best;
  std::size_t most = 0;
  const std::vector<int>& all = sizes.all();
  for (auto size = all.rbegin(); size != all.rend() && most < all.size() && !sizes.stopped(); ++size) {
    told(job, *size);
    const std::int64_t batch = sizes.batch(series.scaling, *size);
    if (batch == 0) continue;
    const Found& from = sizes.planned(*size, batch);
    if (!from.best) continue;
    std::vector<Found> found;
    for (const int devices : all) {
      const std::int64_t own = sizes.batch(series.scaling, devices);
      found.push_back(own == 0 ? Found{std::nullopt, no_batch(job, all.front(), devices)}
                               : sizes.of_plan(held_at(from.best->spec, devices, own), devices, own));
    }
    const auto fit = static_cast<std::size_t>(
        std::count_if(found.begin(), found.end(), [](const Found& one) { return one.best.has_value(); }));
    if (fit <= most) continue;
    most = fit;
    best = std::move(found);
    series.held = plan::describe(from.best->spec);
  }
  if (!best.empty()) return best;
  for (const int devices : all) {  // no plan to hold: each size states its reason
    const std::int64_t batch = sizes.batch(series.scaling, devices);
    best.push_back(batch == 0 ? Found{std::nullopt, no_batch(job, all.front(), devices)}
                              : sizes.planned(devices, batch));
  }
  return best;
}

std::vector<Found> planned(Sizes& sizes, const StudyJob& job, const cost::ScalingSeries& series, Told& told) {
  std::vector<Found> out;
  for (const int devices : sizes.all()) {
    if (sizes.stopped()) break;
    told(job, devices);
    const std::int64_t batch = sizes.batch(series.scaling, devices);
    out.push_back(batch == 0 ? Found{std::nullopt, no_batch(job, sizes.all().front(), devices)}
                             : sizes.planned(devices, batch));
  }
  return out;
}

cost::ScalingSeries described(const StudyJob& job, std::size_t place, cost::Scaling scaling) {
  cost::ScalingSeries out;
  out.job = place;
  out.model = job.model->name;
  out.cluster = job.cluster->name;
  out.device = job.cluster->device().name;
  out.kind = job.cluster->device().kind;
  out.precision = models::name_of(job.job.precision);
  out.parameters = static_cast<double>(models::parameters(*job.model));
  out.memory_bytes = job.cluster->device().memory.value;
  out.sequence = job.model->recommender ? 1 : job.job.sequence;
  out.batch = job.job.batch;
  out.samples = job.model->recommender.has_value();
  out.scaling = scaling;
  return out;
}

cost::ScalingSeries series_of(Sizes& sizes, const StudyJob& job, const StudyOptions& options, std::size_t place,
                              cost::Scaling scaling, Told& told) {
  cost::ScalingSeries series = described(job, place, scaling);
  std::vector<Found> found = options.hold_plan ? held(sizes, job, series, told) : planned(sizes, job, series, told);
  for (std::size_t i = 0; i < found.size(); ++i) {
    cost::ScalingPoint& point = series.points.emplace_back();
    point.devices = sizes.all()[i];
    point.batch = sizes.batch(scaling, point.devices);
    point.best = std::move(found[i].best);
    point.reason = std::move(found[i].reason);
    const auto one = sizes.at(point.devices, point.batch);
    if (!one) continue;
    point.nodes = one->cluster->nodes;
    if (!point.best || !options.evidence) continue;
    StudyEvidence evidence = options.evidence(*one, point.best->spec);
    point.stack = std::move(evidence.stack);
    point.evidence = std::move(evidence.word);
    point.evidence_text = std::move(evidence.text);
    point.factors = evidence.factors;
  }
  return series;
}

}  // namespace

std::vector<int> halves_of(int devices) {
  std::vector<int> sizes;
  for (int size = devices; size > 0; size /= 2) {
    sizes.insert(sizes.begin(), size);
    if (size % 2 != 0) break;
  }
  return sizes;
}

std::optional<plan::PlanSpec> held_at(plan::PlanSpec spec, int devices, std::int64_t batch) {
  const int replica = spec.mesh.ranks() / spec.mesh.data;
  if (devices % replica != 0) return std::nullopt;
  spec.mesh.data = devices / replica;
  spec.shape.batch = batch;
  // A plan must not set what has no meaning on so few replicas.
  if (spec.mesh.replicas() == 1) spec.states.zero_stage = 0;
  if (spec.states.zero_group >= spec.mesh.replicas()) spec.states.zero_group = 0;
  return spec;
}

base::Result<cost::ScalingStudy> scaling_study(const std::vector<StudyJob>& jobs, const StudyOptions& options) {
  std::vector<int> asked = options.sizes;
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  std::vector<cost::Scaling> kinds;
  if (options.strong) kinds.push_back(cost::Scaling::strong);
  if (options.weak) kinds.push_back(cost::Scaling::weak);
  cost::ScalingStudy study;
  study.tokens = options.tokens;
  study.deadline_s = options.deadline_s;
  study.co2_grams_per_kwh = options.co2_grams_per_kwh;
  study.co2_source = options.co2_source;
  std::vector<Sizes> sizes;
  Told told{options};
  base::Diagnostics refused;
  bool any = false;
  for (const StudyJob& job : jobs) {
    sizes.emplace_back(job, options, asked.empty() ? halves_of(job.cluster->size()) : asked);
    any = any || sizes.back().any();
    refused.insert(refused.end(), sizes.back().refused.begin(), sizes.back().refused.end());
    told.all += kinds.size() * sizes.back().all().size();
  }
  if (!any) return base::fail(std::move(refused));
  for (std::size_t i = 0; i < jobs.size(); ++i)
    for (const cost::Scaling kind : kinds) {
      cost::ScalingSeries series = series_of(sizes[i], jobs[i], options, i, kind, told);
      derive(series, study.pays);
      study.series.push_back(std::move(series));
      if (sizes[i].stopped()) {
        study.interrupted = true;
        return study;
      }
    }
  add_runs(study);
  return study;
}

}  // namespace orrery::sim
