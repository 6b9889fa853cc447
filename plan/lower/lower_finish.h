#pragma once
/// Lowers the end of a training step. Private to plan/.
#include <span>

#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

struct StepEnd {
  ClassBuilder& build;
  const Groups& groups;
  const PlanSpec& spec;
  const models::Model& model;
  int zero = 0;
  StageId stage;
  BucketId shared = {};  ///< bucket of the tied token table, if the stage has it
  BufferId norm_squared, coefficient;
};

/// Block "finish": reduces gradients, clips, updates and gathers.
void lower_finish(const StepEnd& end);

/// The same block for an evaluation, which only sums the loss.
void lower_report(const StepEnd& end);

/// The buckets that train, in the order in which their gradients are reduced. The order is the same on all ranks that
/// reduce together, although the stages of a mirrored model have their layers in two orders.
[[nodiscard]] std::vector<BucketId> reduction_order(const PlanSpec& spec, const base::ById<BucketId, Bucket>& buckets);

/// Sums a stage's counts of its experts' choices over layers and all ranks, and computes the losses from them
/// (models::OpKind::balance_losses).
void pool_tallies(ClassBuilder& build, const Groups& groups, const RankClass& rank_class, std::int64_t experts);

/// Operators that add the squares of a bucket's gradients to buffer `into`.
[[nodiscard]] std::vector<models::Op> squares_of(ClassBuilder& build, const Groups& groups, const PlanSpec& spec,
                                                 BucketId b, BufferId into);

/// Makes `steps` run only in training steps before number `training_step`, or only from that step on.
void run_before(std::int64_t training_step, std::span<Step> steps);
void run_from(std::int64_t training_step, std::span<Step> steps);

}  // namespace orrery::plan
