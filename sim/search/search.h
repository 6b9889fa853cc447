#pragma once
/// Plan search: every point of the space within a job's bounds, priced by the closed form, the best few
/// replayed.
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
  std::int64_t done = 0, total = 0;  ///< points of the space
  std::int64_t feasible = 0;
  double best_step_time_s = 0;  ///< 0: none yet
  std::string phase;            ///< "estimating", "replaying"
};

struct SearchOptions {
  int top = 10;                  ///< plans returned
  int replay = 10;               ///< best plans of the closed form that are replayed and ranked again; 0: none
  double memory_fraction = 1.0;  ///< of the device's capacity a plan may fill
  std::function<void(const SearchProgress&)> progress = {};  ///< called now and then, never more than 1,000 times
  std::function<double()> now = {};         ///< seconds on any clock, for SearchResult::seconds; absent: 0
  const std::atomic<bool>* stop = nullptr;  ///< set: return what was found so far
  int threads = 1;                          ///< that share the work; the result is the same with any number
};

/// Exhaustive over data x tensor x pipeline x virtual stages x micro-batch x ZeRO x order x sequence parallelism x
/// recomputation within job.bounds, each point through make_plan's rules; and, of the points that recompute every block
/// because they do not fit without, those with as few blocks as fit. Ranks by the job's objective. Nothing feasible is
/// no error: `plans` is empty, `rejected` counts the reasons and `nearest` says what to relax. Each plan takes the
/// prices of the stack that stands for it.
[[nodiscard]] cost::SearchResult search(std::shared_ptr<const models::Model> model,
                                        std::shared_ptr<const clusters::Cluster> cluster, const plan::Job& job,
                                        const cost::Prices& prices, const SearchOptions& options = {});

/// The objective's value of a prediction: lower is better.
[[nodiscard]] double objective_of(const cost::Prediction& prediction, plan::Objective objective);

}  // namespace orrery::sim
