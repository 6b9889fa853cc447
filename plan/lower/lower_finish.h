#pragma once
/// The end of a training step as lowering notes it down. Private to plan/.
#include <span>

#include "plan/lower/class_builder.h"
#include "plan/lower/factors.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

struct StepEnd {
  ClassBuilder& build;
  const Groups& groups;
  const PlanSpec& spec;
  const models::Model& model;
  int zero = 0, stage = 0;
  int shared = -1;                          ///< bucket of the tied token table, if the stage has it
  int norm_squared = -1, coefficient = -1;  ///< buffers
  const FactorLayout& layout;
};

/// Block "finish": reduces gradients, clips, updates and gathers.
void lower_finish(const StepEnd& end);

/// The same of an evaluation: the loss is summed up, and nothing else.
void lower_report(const StepEnd& end);

/// The all-reduce over the tensor group of what each of its ranks has a part of.
void sum_partial(ClassBuilder& build, const Groups& groups, const Bucket& bucket, int gradients, std::int32_t layer,
                 int b);

/// The all-reduce over the copies of a shard of what each of their sub-groups has summed up (the second hop of MiCS,
/// Zhang et al. 2022, section 3.4); nothing where there is one.
void sum_copies(ClassBuilder& build, const Groups& groups, const View& shard, int b);

/// Buckets that train in the order in which their gradients are reduced: one that is the same on all ranks that reduce
/// together, though the stages of a mirrored model have their layers in two orders.
[[nodiscard]] std::vector<int> reduction_order(const PlanSpec& spec, const std::vector<Bucket>& buckets);

/// What a stage's layers have counted of their experts' choices, summed up over layers and all ranks; and the losses
/// that it makes (models::OpKind::balance_losses).
void pool_tallies(ClassBuilder& build, const Groups& groups, const RankClass& rank_class, std::int64_t experts);

/// Of a run's training steps only those before the one of this number run `steps`, or those from it on.
void run_before(std::int64_t training_step, std::span<Step> steps);
void run_from(std::int64_t training_step, std::span<Step> steps);

}  // namespace orrery::plan
