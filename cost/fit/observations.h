#pragma once
/// What measured runs say about prices: timelines boiled down to one line per distinct step of a run.
#include <cstdint>
#include <string>
#include <vector>

#include "cost/fit/fit.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// The typical time of one step of a block (over micro-batches, ranks of the class and training steps), or, with
/// `step` null, of everything in a training step that lies between spans.
struct Observation {
  int run = 0;  ///< index into the runs
  const plan::Step* step = nullptr;
  const models::Op* op = nullptr;  ///< one operator of the step; null: the step as a whole
  bool in_parts = false;           ///< a step whose operators are observed too: judged, not fitted
  const plan::RankClass* rank_class = nullptr;
  std::vector<int> members;  ///< of the collective's group; for a receive: {sender, receiver}
  double seconds = 0;        ///< end - start; for the rest of a training step: its time
  double count = 0;          ///< spans it stands for, per rank and training step
  bool alone = false;        ///< of a run of one rank, whatever cluster the prices are for
  bool waiting = false;      ///< for equal ranks to come to their meetings, over a training step
  double computed = 0;       ///< seconds that the rank computed in it
  bool gap = false;          ///< from the end of a compute step to the start of the next
  double steps = 0;          ///< schedule steps per rank and training step (for the rest)
  /// One part of what a checkpoint takes, outside training steps: null of all else.
  double CheckpointPrice::*saving = nullptr;
  CheckpointSize size = {};
  std::string what;  ///< for people: "attention forward", "all_reduce tensor", "between steps"
};

/// What Pricing says about it. Spans hold no dispatch overhead, which
/// lies between them, and no jitter, which shows as waiting.
[[nodiscard]] double predicted(const Observation& observation, const Pricing& pricing);

/// Training steps whose time is near the run's median are averaged; others (a page fault, a neighbour on the machine)
/// are left out, so that the observations of a run add up to its typical training step.
/// On streams that `stack` cannot overlap, a message makes no progress while its rank computes: that time is taken out.
[[nodiscard]] std::vector<Observation> observations_of(const FitRun& run, int index, int skip_iterations,
                                                       const Stack& stack);

/// The least squares of cost/fit/fit.h over observations of any origin: the coefficients that they reveal, each with
/// `source`, and how well all observations are met before and after.
[[nodiscard]] Fitted fit_observations(const std::vector<Observation>& observations, const Pricing& before,
                                      const FitOptions& options, const std::string& source);

}  // namespace orrery::cost
