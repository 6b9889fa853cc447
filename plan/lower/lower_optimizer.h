#pragma once
/// The updates of a stage's buckets (plan/outline/update.h) as lowering notes them down. Private to plan/.
#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

/// Makes the buffers of a bucket's states (plan/outline/outline.h). A rank optimizes `optimized` elements of the
/// bucket.
void add_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket, std::int64_t optimized);

/// The gradient values that this rank optimizes: all of them, or its shard.
[[nodiscard]] View optimized_gradient(const ClassBuilder& build, const Bucket& bucket, int zero);

/// Steps from reduced and clipped gradients to updated parameters; ZeRO 1 and 2 gather these bucket by bucket.
/// `coefficient`: the buffer with the clip coefficient, or, with a parameter server, with one for each worker.
/// `except`: a bucket that is updated by a rule of its own.
void lower_update(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, BufferId coefficient,
                  BucketId except = {});

}  // namespace orrery::plan
