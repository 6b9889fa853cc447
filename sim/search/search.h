#pragma once
/// Plan search: considers every point of the space within a job's bounds, prices by the closed form those that may be
/// among the best, and replays the best few.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cost/prices/stacks.h"
#include "cost/results.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

struct SearchProgress {
  std::int64_t done = 0, total = 0;  ///< points of the space; while estimating, feasible ones
  std::int64_t feasible = 0;
  double best_step_time_s = 0;  ///< 0: none yet
  std::string phase;            ///< "checking", "estimating", "replaying"
};

struct SearchOptions {
  int top = 10;                  ///< plans returned
  int replay = 10;               ///< number of plans, best by closed form, to replay and rank again; 0: none
  double memory_fraction = 1.0;  ///< share of the device's capacity that a plan may fill
  std::function<void(const SearchProgress&)> progress = {};  ///< called at intervals, at most 1,000 times
  std::function<double()> now = {};         ///< seconds on any clock, for SearchResult::seconds; absent: 0
  const std::atomic<bool>* stop = nullptr;  ///< when set: return what was found so far
  int threads = 1;                          ///< the result does not depend on their number
};

/// Exhaustive over data x tensor x pipeline x virtual stages x micro-batch x ZeRO x order x sequence parallelism x
/// recomputation within job.bounds, with each point checked by make_plan's rules. For points that recompute every block
/// because they do not fit otherwise, also tries the fewest blocks that fit. Ranks by the job's objective. If nothing
/// is feasible this is not an error: `plans` is empty, `rejected` counts the reasons and `nearest` says what to relax.
/// Each plan has the prices of the stack that applies to it.
[[nodiscard]] cost::SearchResult search(std::shared_ptr<const models::Model> model,
                                        std::shared_ptr<const clusters::Cluster> cluster, const plan::Job& job,
                                        const cost::Prices& prices, const SearchOptions& options = {});

/// The value of a prediction's objective; lower is better.
[[nodiscard]] double objective_of(const cost::Prediction& prediction, plan::Objective objective);

}  // namespace orrery::sim
