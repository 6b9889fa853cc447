#pragma once
/// A small recommendation model, its samples, and a reference of it in plain loops and double precision.
#include <string>
#include <vector>

#include "tests/exec/training.h"

namespace orrery::exec::testing {

/// Four tables: one- and multi-hot, sum and mean, one with more rows than all others. `cross`: with cross layers.
[[nodiscard]] models::Model small_recommender(bool cross = false);
/// The same with weighted sums, bags of several lengths, and empty ones.
[[nodiscard]] models::Model recommender_of_bags(bool cross = false);

/// Writes `count` samples whose clicks follow from their categories, as Criteo's TSV; returns the path.
[[nodiscard]] std::string click_file(const models::Model& model, std::int64_t count, const std::string& name);

/// 16 samples a step, SGD or row-wise Adagrad.
[[nodiscard]] Trial click_trial(bool cross, bool adagrad);
[[nodiscard]] Trial click_trial(bool cross, plan::OptimizerKind kind);
/// The same of recommender_of_bags.
[[nodiscard]] Trial bag_trial(bool cross, plan::OptimizerKind kind);
/// The model, samples and initial weights of tests/golden/pytorch/generate_dlrm.py.
[[nodiscard]] Trial golden_clicks(plan::OptimizerKind kind);

/// Divides the trial's batch over data-parallel ranks; tables stand as `sharding` says, or each at its place, in the
/// form of a plan's file: "row 0 1".
void split(Trial& trial, int ranks, plan::TableSharding sharding);
void place(Trial& trial, int ranks, const std::vector<std::string>& places);

/// The trial's plan on nodes of so many ranks each, where messages within a node and between nodes differ.
[[nodiscard]] plan::Plan plan_on_nodes(const Trial& trial, int per_node);

/// Loss and norm of each step, and the weights behind the last, of the trial's training on one rank, from `initial`;
/// with a parameter server of its workers in turn.
struct ReferenceRun {
  std::vector<double> losses, norms;
  LogicalTensors weights;
};
[[nodiscard]] ReferenceRun reference_run(const Trial& trial, const LogicalTensors& initial);

/// The trial with other samples, none of which comes near a ReLU's kink in its training from `initial`: there the last
/// bit of a sum decides whether a unit has a gradient, and two right runs differ. `dropped`: those that came near.
[[nodiscard]] Trial beside_kinks(Trial trial, const LogicalTensors& initial, std::int64_t* dropped);

}  // namespace orrery::exec::testing
