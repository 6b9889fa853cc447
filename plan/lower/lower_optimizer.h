#pragma once
/// The optimizer as lowering notes it down: its states, and the steps of its update. Private to plan/.
#include "plan/lower/class_builder.h"
#include "plan/lower/factors.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

/// Makes the buffers of a bucket's states, of `optimized` elements each: master, moments, scales.
void add_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket, std::int64_t optimized);

/// What an update works on.
struct Update {
  ClassBuilder& build;
  const Groups& groups;
  const PlanSpec& spec;
  int zero = 0;
  const FactorLayout& layout;
  int coefficient = -1;  ///< buffer
  int turns = 1;         ///< > 1: a parameter server's updates, one for the gradient and coefficient of each worker
};

/// The gradient values that this rank optimizes: all of them, or its shard; and the parameters'.
[[nodiscard]] View optimized_gradient(const ClassBuilder& build, const Bucket& bucket, int zero);
[[nodiscard]] View optimized_values(const ClassBuilder& build, const Bucket& bucket, int zero);

/// Steps from reduced and clipped gradients to updated parameters, which ZeRO-1 and 2 gather bucket by bucket. What an
/// optimizer says of whole tensors (LAMB's trust ratio, Adafactor's factors and clipping) is summed over the ranks that
/// have parts of them, in messages of one stage's parameters together; what it makes of whole matrices (Muon) is made
/// of the pieces of all these ranks, bucket by bucket.
void lower_update(const Update& update);

}  // namespace orrery::plan
