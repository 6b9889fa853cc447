#pragma once
/// What measured runs reveal about prices: timelines reduced to one observation per distinct step of a run.
#include <cstdint>
#include <string>
#include <vector>

#include "cost/fit/fit.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// The typical time of one step of a block (over micro-batches, ranks of the class and training steps) or, if `step` is
/// null, of all time in a training step that lies outside spans.
struct Observation {
  int run = 0;  ///< index into the runs
  const plan::Step* step = nullptr;
  const models::Op* op = nullptr;  ///< one operator of the step; null: the step as a whole
  bool in_parts = false;           ///< a step whose operators are observed too: used for judging, not for fitting
  const plan::RankClass* rank_class = nullptr;
  std::vector<int> members;  ///< of the collective's group; for a receive: {sender, receiver}
  double seconds = 0;        ///< end - start; for the rest of a training step, its duration
  double count = 0;          ///< number of spans that it represents, per rank and training step
  bool alone = false;        ///< from a run of one rank, whatever cluster the prices are for
  bool waiting = false;      ///< waiting of equal ranks for each other, over a training step
  double computed = 0;       ///< seconds that the rank computes in that time
  bool gap = false;          ///< from the end of a compute step to the start of the next
  double steps = 0;          ///< schedule steps per rank and training step (for the rest)
  /// One part of a checkpoint's time, outside training steps; null otherwise.
  double CheckpointPrice::*saving = nullptr;
  CheckpointSize size = {};
  std::string what;  ///< for people: "attention forward", "all_reduce tensor", "between steps"
};

/// The value that Pricing predicts. Spans contain neither dispatch overhead, which lies between them, nor jitter, which
/// appears as waiting.
[[nodiscard]] double predicted(const Observation& observation, const Pricing& pricing);

/// Averages the training steps whose time is near the run's median and excludes the others (a page fault, a neighbour
/// on the machine), so that a run's observations add up to its typical training step. On streams that `stack` cannot
/// overlap, a message makes no progress while its rank computes: that time is subtracted.
[[nodiscard]] std::vector<Observation> observations_of(const FitRun& run, int index, int skip_iterations,
                                                       const Stack& stack);

/// The least squares of cost/fit/fit.h over observations of any origin: the coefficients that they determine, each with
/// `source`, and the errors of all observations before and after.
[[nodiscard]] Fitted fit_observations(const std::vector<Observation>& observations, const Pricing& before,
                                      const FitOptions& options, const std::string& source);

}  // namespace orrery::cost
