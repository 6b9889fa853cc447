#pragma once
/// The end of a training step as lowering notes it down. Private to plan/.
#include "plan/class_builder.h"
#include "plan/factors.h"
#include "plan/groups.h"

namespace orrery::plan {

struct StepEnd {
  ClassBuilder& build;
  const Groups& groups;
  const PlanSpec& spec;
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

}  // namespace orrery::plan
