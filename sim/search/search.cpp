/// The search: enumerate, check, price by the closed form, rank, look closer at the best.
#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "sim/search/loss_chunks.h"
#include "sim/search/partial_recompute.h"
#include "sim/search/space.h"
#include "sim/simulate.h"

namespace orrery::sim {

namespace {

constexpr const char* kMemory = "memory: does not fit the device";
constexpr const char* kBeside = "memory: what is offloaded does not fit the node's host memory or drives";
/// Progress is told this often over one search.
constexpr std::int64_t kReports = 200;

struct Candidate {
  double objective = 0;
  std::size_t index = 0;  ///< into the space
  bool operator<(const Candidate& o) const {
    return objective != o.objective ? objective < o.objective : index < o.index;
  }
};

double objective_of_estimate(const cost::Estimate& e, plan::Objective objective) {
  // Of one cluster, dollars and joules are proportional to seconds.
  return objective == plan::Objective::memory ? e.memory_peak : e.step_time;
}

/// The k best seen so far.
class Best {
 public:
  explicit Best(std::size_t k) : k_(k) {}
  void offer(Candidate c) {
    if (heap_.size() == k_ && !(c < heap_.front())) return;
    if (heap_.size() == k_) {
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    heap_.push_back(c);
    std::push_heap(heap_.begin(), heap_.end());
  }
  /// Whether a candidate of this objective would be kept.
  [[nodiscard]] bool takes(double objective) const { return heap_.size() < k_ || objective < heap_.front().objective; }
  [[nodiscard]] std::vector<Candidate> sorted() const {
    std::vector<Candidate> out = heap_;
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::size_t k_;
  std::vector<Candidate> heap_;
};

/// The plan that missed the capacity by least.
struct NearMiss {
  double memory = std::numeric_limits<double>::infinity();
  plan::PlanSpec spec;
};

using Model = std::shared_ptr<const models::Model>;
using Cluster = std::shared_ptr<const clusters::Cluster>;

/// Whether logits may come in chunks of the search's own accord: where the job leaves it open, and the stack is one
/// whose memory is the schedule's.
bool may_chunk(const plan::Job& job, const cost::Pricing& pricing) {
  return job.bounds.loss_chunks.empty() && !pricing.stack().memory.stated;
}

/// Whether plans may recompute some blocks of the search's own accord: where the job leaves it open, and time counts.
bool may_recompute_some(const plan::Job& job) {
  const std::vector<plan::Recompute>& named = job.bounds.recompute;
  return !job.bounds.recompute_layers && job.objective != plan::Objective::memory &&
         (named.empty() || std::find(named.begin(), named.end(), plan::Recompute::none) != named.end());
}

/// Whether any point of the space of `job` fits; stops at the first.
bool any_fits(const Model& model, const Cluster& cluster, const plan::Job& job, const cost::Pricing& pricing,
              double capacity) {
  cost::Estimator estimator(model, pricing);
  for (const plan::PlanSpec& spec :
       space_of(*cluster, *model, job, pricing.stack().flash, pricing.stack().overlap_gradients)) {
    const auto made = plan::make_plan(model, cluster, spec);
    if (!made) continue;
    const double memory = estimator.memory_peak(*made);
    const bool fits =
        memory <= capacity ||
        (may_chunk(job, pricing) && loss_chunks_that_fit(estimator, *made, model, cluster, memory, capacity) > 1);
    if (fits && estimator.fits_beside(*made)) return true;
  }
  return false;
}

/// The least that would have to leave the devices for some plan to fit; empty where nothing helps, or where the job
/// says itself what may leave. Not tried by itself: a step may take several times as long.
std::string offloading(const Model& model, const Cluster& cluster, const plan::Job& job, const cost::Pricing& pricing,
                       double capacity) {
  using plan::Space;
  const plan::Bounds& b = job.bounds;
  if (!b.offload_activations.empty() || !b.offload_optimizer.empty() || !b.offload_parameters.empty()) return {};
  const bool gpu = cluster->device().kind == clusters::DeviceKind::gpu;
  if (gpu && cluster->host_memory.capacity.value == 0) return {};
  struct Way {
    Space activations, optimizer, parameters;
  };
  std::vector<Way> ways = {{Space::host, Space::device, Space::device},
                           {Space::device, Space::host, Space::device},
                           {Space::host, Space::host, Space::device},
                           {Space::host, Space::host, Space::host}};
  if (!gpu || cluster->nvme.capacity.value > 0)
    ways.insert(ways.end(), {{Space::host, Space::nvme, Space::device},
                             {Space::host, Space::nvme, Space::host},
                             {Space::host, Space::nvme, Space::nvme}});
  for (const Way& way : ways) {
    plan::Job leaving = job;
    leaving.bounds.offload_activations = {way.activations};
    leaving.bounds.offload_optimizer = {way.optimizer};
    leaving.bounds.offload_parameters = {way.parameters};
    if (!any_fits(model, cluster, leaving, pricing, capacity)) continue;
    std::string what;
    const auto name = [&](const char* key, Space space) {
      if (space != Space::device) what += fmt::format("{}{}: {}", what.empty() ? "" : ", ", key, plan::name_of(space));
    };
    name("activations", way.activations);
    name("optimizer", way.optimizer);
    name("parameters", way.parameters);
    return fmt::format("offloading makes a plan possible, at the price of copies: plan.offload: {{{}}}", what);
  }
  return {};
}

/// Pairs of degrees of the mesh which, dropped together, let some plan fit: one degree alone rarely gives way, as the
/// product has to fill the cluster.
std::vector<std::string> relaxed_pairs(const Model& model, const Cluster& cluster, const plan::Job& job,
                                       const cost::Pricing& pricing, double capacity) {
  using Degree = std::vector<int> plan::Bounds::*;
  const std::pair<const char*, Degree> degrees[] = {{"data", &plan::Bounds::data},
                                                    {"tensor", &plan::Bounds::tensor},
                                                    {"pipeline", &plan::Bounds::pipeline},
                                                    {"context", &plan::Bounds::context}};
  std::vector<std::string> out;
  for (auto a = std::begin(degrees); a != std::end(degrees); ++a)
    for (auto b = std::next(a); b != std::end(degrees); ++b) {
      plan::Job freed = job;
      std::vector<int>&first = freed.bounds.*(a->second), &second = freed.bounds.*(b->second);
      if (first.empty() || second.empty()) continue;
      first.clear();
      second.clear();
      if (any_fits(model, cluster, freed, pricing, capacity))
        out.push_back(fmt::format("leaving plan.{} and plan.{} free makes a plan possible", a->first, b->first));
    }
  return out;
}

/// Bounds of the job which, dropped one at a time, let some plan fit.
std::vector<std::string> relaxations(const Model& model, const Cluster& cluster, const plan::Job& job,
                                     const cost::Pricing& pricing, double capacity) {
  std::vector<std::string> out;
  const auto attempt = [&](const char* key, auto member) {
    plan::Job freed = job;
    auto& bound = freed.bounds.*member;
    if (bound == std::remove_reference_t<decltype(bound)>{}) return;
    bound = {};
    if (any_fits(model, cluster, freed, pricing, capacity))
      out.push_back(fmt::format("leaving plan.{} free makes a plan possible", key));
  };
  attempt("data", &plan::Bounds::data);
  attempt("tensor", &plan::Bounds::tensor);
  attempt("pipeline", &plan::Bounds::pipeline);
  attempt("context", &plan::Bounds::context);
  attempt("expert", &plan::Bounds::expert);
  attempt("micro_batch", &plan::Bounds::micro_batch);
  attempt("zero_stage", &plan::Bounds::zero_stage);
  attempt("zero_group", &plan::Bounds::zero_group);
  attempt("recompute", &plan::Bounds::recompute);
  attempt("virtual_stages", &plan::Bounds::virtual_stages);
  attempt("sequence_parallel", &plan::Bounds::sequence_parallel);
  attempt("schedule", &plan::Bounds::schedule);
  attempt("layers_per_stage", &plan::Bounds::layers_per_stage);
  attempt("loss_chunks", &plan::Bounds::loss_chunks);
  if (std::string line = offloading(model, cluster, job, pricing, capacity); !line.empty())
    out.push_back(std::move(line));
  return out;
}

std::vector<std::string> nearest(const Model& model, const Cluster& cluster, const plan::Job& job,
                                 const cost::Pricing& pricing, double capacity, const NearMiss& miss,
                                 const std::map<std::string, std::int64_t>& rejected) {
  std::vector<std::string> out;
  if (std::isfinite(miss.memory)) {
    out.push_back(fmt::format("the plan that needs least memory, {}, needs {} a device of {}",
                              plan::describe(miss.spec), base::human(base::Bytes{miss.memory}),
                              base::human(base::Bytes{capacity})));
  }
  for (std::string& line : relaxations(model, cluster, job, pricing, capacity)) out.push_back(std::move(line));
  if (std::isfinite(miss.memory) && out.size() == 1) {
    out.push_back(fmt::format("devices with {} each, or more devices, would do; so may a shorter sequence",
                              base::human(base::Bytes{miss.memory})));
  }
  if (out.empty()) out = relaxed_pairs(model, cluster, job, pricing, capacity);
  if (!out.empty()) return out;
  const auto most = std::max_element(rejected.begin(), rejected.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == rejected.end())
    out.push_back(
        fmt::format("no data x tensor x pipeline within plan: makes {} ranks for a batch of {}; change the batch "
                    "or the number of devices",
                    cluster->size(), job.batch));
  else
    out.push_back(
        fmt::format("what stands in the way most often is {}; change the batch ({}), the number of devices "
                    "({}), or the model",
                    most->first, job.batch, cluster->size()));
  return out;
}

/// Replays the best plans of the closed form and ranks them again, ahead of those not replayed. A plan that turns out
/// not to fit is dropped.
void replay_best(cost::SearchResult& result, const Model& model, const Cluster& cluster, const plan::Job& job,
                 const cost::Pricing& pricing, const SearchOptions& options, SearchProgress progress, double capacity) {
  progress.phase = "replaying";
  progress.done = 0;
  progress.total = std::min<std::int64_t>(options.replay, static_cast<std::int64_t>(result.plans.size()));
  std::vector<cost::Prediction> replayed;
  const SimulateOptions replay{.spans = false, .fabric = fabric_of(pricing.cluster())};
  std::size_t looked_at = 0;
  for (; looked_at < static_cast<std::size_t>(progress.total); ++looked_at) {
    if (options.stop && options.stop->load(std::memory_order_relaxed)) break;
    if (options.progress) options.progress(progress);
    ++progress.done;
    const auto made = plan::make_plan(model, cluster, result.plans[looked_at].spec);
    cost::Prediction p = simulate(*made, pricing, replay).prediction;
    ++result.simulated;
    if (p.memory_peak_bytes <= capacity) {
      replayed.push_back(std::move(p));
    } else {
      ++result.rejected[kMemory];
      --result.feasible;
    }
  }
  std::stable_sort(replayed.begin(), replayed.end(), [&](const cost::Prediction& a, const cost::Prediction& b) {
    return sim::objective_of(a, job.objective) < sim::objective_of(b, job.objective);
  });
  replayed.insert(replayed.end(),
                  std::make_move_iterator(result.plans.begin() + static_cast<std::ptrdiff_t>(looked_at)),
                  std::make_move_iterator(result.plans.end()));
  result.plans = std::move(replayed);
}

}  // namespace

double objective_of(const cost::Prediction& p, plan::Objective objective) {
  switch (objective) {
    case plan::Objective::time: return p.step_time_s;
    case plan::Objective::cost: return p.cost_per_step_usd > 0 ? p.cost_per_step_usd : p.step_time_s;
    case plan::Objective::energy: return p.energy_per_step_j > 0 ? p.energy_per_step_j : p.step_time_s;
    case plan::Objective::memory: return p.memory_peak_bytes;
  }
  return p.step_time_s;
}

cost::SearchResult search(Model model, Cluster cluster, const plan::Job& job, const cost::Pricing& pricing,
                          const SearchOptions& options) {
  const double began = options.now ? options.now() : 0;
  const double capacity = cluster->device().memory.value * options.memory_fraction;
  std::vector<plan::PlanSpec> space =
      space_of(*cluster, *model, job, pricing.stack().flash, pricing.stack().overlap_gradients);
  cost::SearchResult result;
  result.candidates = static_cast<std::int64_t>(space.size());
  cost::Estimator estimator(model, pricing);
  Best best(static_cast<std::size_t>(std::max({1, options.top, options.replay})));
  NearMiss miss;
  SearchProgress progress{0, result.candidates, 0, 0, "estimating"};
  const std::int64_t every = std::max<std::int64_t>(1, result.candidates / kReports);
  std::vector<Candidate> full;  // those that recompute every block
  for (std::size_t i = 0; i < space.size(); ++i) {
    if (options.stop && options.stop->load(std::memory_order_relaxed)) break;
    if (options.progress && static_cast<std::int64_t>(i) % every == 0) {
      progress.done = static_cast<std::int64_t>(i);
      options.progress(progress);
    }
    auto made = plan::make_plan(model, cluster, space[i]);
    if (!made) {
      ++result.rejected[reason_of(made.error().front().code)];
      continue;
    }
    double memory = estimator.memory_peak(*made);
    ++result.evaluated;
    if (memory > capacity && may_chunk(job, pricing)) {
      space[i].loss_chunks = loss_chunks_that_fit(estimator, *made, model, cluster, memory, capacity);
      if (space[i].loss_chunks > 1) {
        made = plan::make_plan(model, cluster, space[i]);
        memory = estimator.memory_peak(*made);
      }
    }
    if (memory > capacity) {
      ++result.rejected[kMemory];
      if (memory < miss.memory) miss = {memory, made->spec()};
      continue;
    }
    if (!estimator.fits_beside(*made)) {
      ++result.rejected[kBeside];
      continue;
    }
    const cost::Estimate estimate = estimator.estimate(*made);
    progress.feasible = ++result.feasible;
    if (progress.best_step_time_s == 0 || estimate.step_time < progress.best_step_time_s)
      progress.best_step_time_s = estimate.step_time;
    const Candidate candidate{objective_of_estimate(estimate, job.objective), i};
    best.offer(candidate);
    if (space[i].recompute == plan::Recompute::full && may_recompute_some(job)) full.push_back(candidate);
  }
  std::sort(full.begin(), full.end());
  for (const Candidate& c : full) {
    if (!best.takes(kLeastOfFull * c.objective) || (options.stop && options.stop->load(std::memory_order_relaxed)))
      break;
    const auto whole = plan::make_plan(model, cluster, space[c.index]);
    const auto some = fewest_recomputed(estimator, *whole, model, cluster, capacity);
    if (!some || !estimator.fits_beside(*some)) continue;
    ++result.evaluated;
    space.push_back(some->spec());
    best.offer({objective_of_estimate(estimator.estimate(*some), job.objective), space.size() - 1});
  }
  for (const Candidate& c : best.sorted()) {
    const auto made = plan::make_plan(model, cluster, space[c.index]);
    result.plans.push_back(estimator.predict(*made));
  }
  replay_best(result, model, cluster, job, pricing, options, progress, capacity);
  if (result.plans.size() > static_cast<std::size_t>(options.top))
    result.plans.resize(static_cast<std::size_t>(options.top));
  if (result.feasible == 0) result.nearest = nearest(model, cluster, job, pricing, capacity, miss, result.rejected);
  if (options.now) result.seconds = options.now() - began;
  return result;
}

}  // namespace orrery::sim
