#pragma once
/// The updates of a stage's buckets (plan/outline/update.h) as lowering notes them down. Private to plan/.
#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

/// Makes the buffers of a bucket's states (plan/outline/outline.h), of which a rank optimizes `optimized` elements.
void add_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket, std::int64_t optimized);

/// The gradient values that this rank optimizes: all of them, or its shard.
[[nodiscard]] View optimized_gradient(const ClassBuilder& build, const Bucket& bucket, int zero);

/// Steps from reduced and clipped gradients to updated parameters, which ZeRO-1 and 2 gather bucket by bucket.
/// `coefficient`: the buffer with the clip coefficient, or with every worker's of a parameter server. `except`: a
/// bucket that its own rule updates.
void lower_update(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, BufferId coefficient,
                  int except = -1);

}  // namespace orrery::plan
