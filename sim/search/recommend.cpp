// Replays a few candidates.
#include "sim/search/recommend.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

#include "cost/prices/table_rows.h"
#include "plan/spec/rules.h"
#include "plan/spec/table_planner.h"
#include "plan/spec/table_tiers.h"
#include "sim/simulate.h"

namespace orrery::sim {
namespace {

using plan::TableSharding;

constexpr int kTries = 4;  // to place tables in less memory: what is beside them changes with where they are

template <class T>
std::vector<T> bounded(const std::vector<T>& bound, std::vector<T> free) {
  return bound.empty() ? std::move(free) : bound;
}

// A single node leaves out what differs only between nodes. On a single rank nothing is split.
std::vector<TableSharding> shardings(const clusters::Cluster& cluster, const plan::Bounds& bounds) {
  if (!bounds.embedding.placement.empty()) return {TableSharding::automatic};
  if (cluster.size() == 1) return bounded(bounds.embedding.sharding, {TableSharding::automatic});
  std::vector<TableSharding> free = {TableSharding::automatic, TableSharding::whole, TableSharding::row,
                                     TableSharding::column, TableSharding::replicated};
  if (cluster.nodes > 1) free.insert(free.end(), {TableSharding::node_row, TableSharding::grid});
  return bounded(bounds.embedding.sharding, std::move(free));
}

// Bounds that a recommendation model does not have are left for make_plan to refuse.
plan::PlanSpec usual(const plan::Job& job, const clusters::Cluster& cluster) {
  plan::PlanSpec spec;
  const plan::Bounds& b = job.bounds;
  const auto first = [](const auto& bound, auto& member) {
    if (!bound.empty()) member = static_cast<std::remove_reference_t<decltype(member)>>(bound.front());
  };
  spec.mesh.data = cluster.size();
  first(b.mesh.data, spec.mesh.data);
  first(b.mesh.tensor, spec.mesh.tensor);
  first(b.mesh.pipeline, spec.mesh.pipeline);
  first(b.mesh.context, spec.mesh.context);
  first(b.mesh.expert, spec.mesh.expert);
  first(b.stages.virtual_stages, spec.stages.virtual_stages);
  first(b.states.zero_stage, spec.states.zero_stage);
  first(b.recomputation.what, spec.recomputation.what);
  spec.shape.batch = job.batch;
  spec.shape.micro_batch = std::max<std::int64_t>(1, job.batch / std::max(1, spec.mesh.data));
  first(b.shape.micro_batch, spec.shape.micro_batch);
  spec.shape.sequence = std::max<std::int64_t>(1, job.sequence);
  spec.numerics.precision = job.precision;
  spec.numerics.rounding = job.rounding;
  spec.numerics.vocab_multiple = job.vocab_multiple;
  spec.states.staleness = b.states.staleness;
  spec.embedding.placement = b.embedding.placement;
  spec.embedding.tiers = b.embedding.tiers;
  if (b.embedding.stored) spec.embedding.stored = *b.embedding.stored;
  if (b.embedding.skew) spec.embedding.skew = *b.embedding.skew;
  plan::take_optimizer(spec, job.training);
  return spec;
}

/// Bytes of tables on the rank with most, as the planner counts them.
double most_table_bytes(const models::Recommender& model, const clusters::Cluster& cluster,
                        const plan::PlanSpec& placed) {
  std::vector<double> bytes(static_cast<std::size_t>(placed.mesh.data));
  for (const plan::TableReport& row : plan::describe_tables(model, cluster, placed)) {
    for (const int rank : row.place.ranks) bytes[static_cast<std::size_t>(rank)] += row.option.memory;
    if (row.place.replicated)
      for (double& one : bytes) one += row.option.memory;
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

/// Places tables anew, in less memory. The planner knows what tables take and guesses what is beside them; a replay of
/// the plan says how much that was wrong.
class Tightening {
 public:
  Tightening(const models::Recommender& model, const clusters::Cluster& cluster, const plan::PlanSpec& free)
      : model_(model), cluster_(cluster), free_(free), problem_(plan::table_problem(model, cluster, free)) {}

  /// `free` with a placement whose fullest rank has at least `excess` bytes less than that of `placed`, if there is
  /// one.
  std::optional<plan::PlanSpec> next(const plan::PlanSpec& placed, double excess) {
    problem_.capacity = std::min(problem_.capacity, most_table_bytes(model_, cluster_, placed)) - excess;
    if (problem_.capacity <= 0) return std::nullopt;
    const plan::TablePlan plan = plan::plan_tables(problem_);
    if (!plan.fits) return std::nullopt;
    plan::PlanSpec spec = free_;
    spec.embedding.placement = plan.placement;
    return spec;
  }

 private:
  const models::Recommender& model_;
  const clusters::Cluster& cluster_;
  const plan::PlanSpec& free_;
  plan::TableProblem problem_;
};

}  // namespace

std::string too_much_beside(const cost::Prediction& prediction, const clusters::Cluster& cluster) {
  double host = 0, nvme = 0;
  for (const cost::MemoryRow& row : prediction.memory) host = std::max(host, row.host), nvme = std::max(nvme, row.nvme);
  const double ranks = std::min(cluster.devices_per_node, cluster.size());
  const auto exceeds = [&](double each, const clusters::Storage& memory) {
    return memory.capacity.value > 0 && each * ranks > memory.capacity.value;
  };
  if (exceeds(host, cluster.host_memory)) return "memory: does not fit the host";
  return exceeds(nvme, cluster.nvme) ? "memory: does not fit the drives" : "";
}

cost::SearchResult search_tables(const std::shared_ptr<const models::Model>& model,
                                 const std::shared_ptr<const clusters::Cluster>& cluster, const plan::Job& job,
                                 const cost::Pricing& pricing, const SearchOptions& options, const cost::Room& room) {
  const double began = options.now ? options.now() : 0;
  const plan::EmbeddingBounds& bounds = job.bounds.embedding;
  cost::SearchResult result;
  std::vector<plan::PlanSpec> space;
  for (const TableSharding sharding : shardings(*cluster, job.bounds))
    for (const plan::PooledType forward : bounded(bounds.forward, {plan::PooledType::fp32}))
      for (const plan::PooledType backward : bounded(bounds.backward, {plan::PooledType::fp32})) {
        space.push_back(usual(job, *cluster));
        plan::Embedding& e = space.back().embedding;
        e.sharding = sharding, e.forward = forward, e.backward = backward;
      }
  result.candidates = static_cast<std::int64_t>(space.size());
  SearchProgress progress{0, result.candidates, 0, 0, "replaying"};
  std::set<std::string> nearest;
  double least_memory = 0;
  // Where no plan's predicted memory fits the devices, the same with some tables in other memories.
  bool may_leave = bounds.tiers.empty() && bounds.placement.empty() && !room.holds_back();
  const auto add_leaving = [&] {
    for (std::size_t i = 0, known = space.size(); may_leave && result.plans.empty() && i < known; ++i) {
      plan::PlanSpec spec = space[i];
      spec.embedding.tiers = plan::choose_tiers(*model->recommender, *cluster, spec);
      if (!spec.embedding.tiers.empty()) space.push_back(std::move(spec));
    }
    may_leave = false;
    result.candidates = progress.total = static_cast<std::int64_t>(space.size());
  };
  for (std::size_t next = 0;; ++next) {
    if (next == space.size()) add_leaving();
    if (next == space.size()) break;
    const plan::PlanSpec spec = space[next];
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      result.interrupted = true;
      break;
    }
    ++progress.done;
    auto made = plan::make_plan(model, cluster, spec);
    if (!made) {
      for (const base::Diagnostic& one : made.error()) {
        const plan::Rule* rule = plan::find_rule(one.code);
        ++result.rejected[rule != nullptr ? fmt::format("{} {}", one.code, rule->broken_by) : one.code];
        const std::string where = one.where.file.empty() ? "" : fmt::format("{}:{}: ", one.where.file, one.where.line);
        nearest.insert(where + one.message + (one.help.empty() ? "" : ": " + one.help));
      }
      continue;
    }
    ++result.evaluated;
    ++result.simulated;
    cost::Prediction prediction = simulate(*made, pricing, {.spans = false}).prediction;
    if (prediction.memory_peak_bytes > room.of(spec) && spec.embedding.placement.empty() &&
        made->spec().embedding.tiers.empty()) {
      Tightening tightening(*model->recommender, *cluster, spec);
      for (int tries = 0; tries < kTries && prediction.memory_peak_bytes > room.of(spec); ++tries) {
        const auto tighter = tightening.next(made->spec(), prediction.memory_peak_bytes - room.of(spec));
        if (!tighter) break;
        auto again = plan::make_plan(model, cluster, *tighter);
        if (!again) break;
        made = std::move(again);
        ++result.simulated;
        prediction = simulate(*made, pricing, {.spans = false}).prediction;
      }
    }
    if (prediction.memory_peak_bytes > room.of(spec)) {
      ++result.rejected[prediction.memory_peak_bytes > room.capacity() ? "memory: does not fit the device"
                                                                       : "memory: fits with too low a probability"];
      if (least_memory == 0 || prediction.memory_peak_bytes < least_memory) least_memory = prediction.memory_peak_bytes;
      continue;
    }
    if (const std::string full = too_much_beside(prediction, *cluster); !full.empty()) {
      ++result.rejected[full];
      continue;
    }
    ++result.feasible;
    result.plans.push_back(std::move(prediction));
    progress.feasible = result.feasible;
    if (options.progress) options.progress(progress);
  }
  std::stable_sort(result.plans.begin(), result.plans.end(), [&](const cost::Prediction& a, const cost::Prediction& b) {
    return objective_of(a, job.objective) < objective_of(b, job.objective);
  });
  if (result.plans.empty()) {
    result.nearest.assign(nearest.begin(), nearest.end());
    if (least_memory > 0)
      result.nearest.push_back(
          fmt::format("the plan that needs the least memory needs {:.1f} GiB per device, but a device has {:.1f}",
                      least_memory / (1 << 30), cluster->device().memory.value / (1 << 30)));
  }  // other placements have a lower bound in loads, not in seconds: no gap is given
  if (result.plans.size() > static_cast<std::size_t>(options.top))
    result.plans.resize(static_cast<std::size_t>(options.top));
  if (options.now) result.seconds = options.now() - began;
  return result;
}

}  // namespace orrery::sim
