#pragma once
/// A small recommendation model, its samples, and a reference of it in plain loops and double precision.
#include <string>
#include <vector>

#include "tests/exec/training.h"

namespace orrery::exec::testing {

/// Four tables: one- and multi-hot, sum and mean, one with more rows than all others. `cross`: with cross layers.
[[nodiscard]] models::Model small_recommender(bool cross = false);

/// Writes `count` samples whose clicks follow from their categories, as Criteo's TSV; returns the path.
[[nodiscard]] std::string click_file(const models::Model& model, std::int64_t count, const std::string& name);

/// 16 samples a step, SGD or row-wise Adagrad.
[[nodiscard]] Trial click_trial(bool cross, bool adagrad);
[[nodiscard]] Trial click_trial(bool cross, plan::OptimizerKind kind);
/// The model, samples and initial weights of tests/golden/pytorch/generate_dlrm.py.
[[nodiscard]] Trial golden_clicks(plan::OptimizerKind kind);

/// Loss of each step, and the weights behind the last, of the trial's training on one rank, from `initial`.
struct ReferenceRun {
  std::vector<double> losses;
  LogicalTensors weights;
};
[[nodiscard]] ReferenceRun reference_run(const Trial& trial, const LogicalTensors& initial);

}  // namespace orrery::exec::testing
