#pragma once
/// The closed form: step time and memory of one plan in microseconds, for the search. It prices the same operators and
/// messages as a replayed Schedule, but sums instead of replaying. Layer programs and their prices are memoised
/// (cost/estimate/layer_key.h), so an Estimator is built once per search.
#include <cstdint>
#include <memory>
#include <vector>

#include "cost/parameters/memory_recipe.h"
#include "cost/prices/lockstep.h"
#include "cost/prices/pricing.h"
#include "cost/results.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Bytes of a stage's worst rank at the moment of its peak, by purpose.
struct StageMemory {
  double parameters = 0, gradients = 0, optimizer_states = 0, activations = 0, workspace = 0, communication = 0;
  double input = 0, fragmentation = 0, software = 0;
  double host = 0, nvme = 0;  ///< other memories, not in the total
  [[nodiscard]] double total() const {
    return parameters + gradients + optimizer_states + activations + workspace + communication + input + fragmentation +
           software;
  }
};

/// What the search needs to know about one plan; seconds, bytes.
struct Estimate {
  double step_time = 0;
  double memory_peak = 0;  ///< of the worst stage, in the sense of the MemoryQuestion
  plan::StageId worst_stage = plan::kFirstStage;
  double bubble = 0;    ///< seconds of waiting for another stage, mean over stages
  Breakdown breakdown;  ///< mean over stages; sums to step_time
};

/// What keeps threads apart: cost/ has none of its own.
class Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  virtual ~Lock() = default;
  virtual void lock() = 0;
  virtual void unlock() = 0;
};

/// Costs of layers, which several estimators may share; those of several threads with a lock.
class LayerStore;
[[nodiscard]] std::shared_ptr<LayerStore> make_layer_store(std::unique_ptr<Lock> lock = nullptr);

/// Bytes that the ranks of a node keep beside their devices.
struct NodeMemory {
  double host = 0, nvme = 0;
};

class Estimator {
 public:
  /// `pricing` must outlive the estimator. Not thread-safe (it memoises). `links`: prices of messages of a stage's
  /// ranks that share links; null: as `pricing` assumes (cost/prices/lockstep.h). `store`: shared by estimators of the
  /// same model and prices, all with links or all without; null: its own.
  Estimator(std::shared_ptr<const models::Model> model, const Pricing& pricing,
            std::unique_ptr<SharedLinks> links = nullptr, std::shared_ptr<LayerStore> store = nullptr);
  ~Estimator();
  Estimator(Estimator&&) noexcept;

  [[nodiscard]] Estimate estimate(const plan::Plan& plan, MemoryQuestion question = {});
  /// Omits memory, for trying many prices on one plan.
  [[nodiscard]] Estimate time(const plan::Plan& plan);
  /// A lower bound of Estimate::step_time, seconds, without running the pipeline, so that a search need not time plans
  /// that cannot be among its best.
  [[nodiscard]] double least_time(const plan::Plan& plan);
  /// A looser one, seconds, from the layers alone, which takes a fraction of the work. 0 where a pipeline never drains.
  [[nodiscard]] double least_work(const plan::Plan& plan);
  /// A looser one still, from layers of micro-batches so large that no other size takes less time for a sequence. Plans
  /// that differ in this size share them.
  [[nodiscard]] double least_rate(const plan::Plan& plan);
  /// Bytes of the worst rank only, so that a search need not time plans that do not fit.
  [[nodiscard]] double memory_peak(const plan::Plan& plan, MemoryQuestion question = {});
  /// A lower bound of that, bytes: of parameters and their states alone, which takes a fraction of the work.
  [[nodiscard]] double least_states(const plan::Plan& plan);
  /// A tighter one, also of what passes keep, from the layers of a micro-batch of one sequence. Where that is not
  /// known, the same.
  [[nodiscard]] double least_memory(const plan::Plan& plan);
  /// An upper bound, from the same layers; infinite where that is not known.
  [[nodiscard]] double most_memory(const plan::Plan& plan);
  [[nodiscard]] StageMemory memory(const plan::Plan& plan, plan::StageId stage, MemoryQuestion question = {});
  /// What a node's ranks offload, on the stage that offloads most.
  [[nodiscard]] NodeMemory beside(const plan::Plan& plan);
  /// Whether that fits the node's host memory and its drives, as far as the cluster states their capacity.
  [[nodiscard]] bool fits_beside(const plan::Plan& plan);
  /// For every stage: the memory that its device holds.
  [[nodiscard]] std::vector<MemoryRow> memory(const plan::Plan& plan);
  /// The full record, for reports: MFU, tokens/s, cost, energy, memory by stage, communication by dimension.
  [[nodiscard]] Prediction predict(const plan::Plan& plan) { return predict(plan, estimate(plan)); }
  /// The same of what is already known of the plan.
  [[nodiscard]] Prediction predict(const plan::Plan& plan, const Estimate& known);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Fills in what follows from step_time_s, breakdown and the plan alone: mfu, tokens_per_s, cost_per_step_usd,
/// energy_per_step_j, memory_capacity_bytes; leaves bubble_fraction unchanged. Shared by the closed form and the
/// replay.
void derive(Prediction& prediction, const plan::Plan& plan);

}  // namespace orrery::cost
