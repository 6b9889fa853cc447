#pragma once
/// What the stages of an asynchronous pipeline do by themselves, on one rank. Private to plan/.
#include "plan/lower/serial_step.h"

namespace orrery::plan {

/// Layers read weights as old as those of their stage, from rings of versions.
void age_weights(SerialStep& to, const Plan& split);

/// The layers of a stage clip by the norm of their own gradients; the two ends of a model with a tied table (`shared`)
/// clip together.
void clip_by_stages(SerialStep& to, const Plan& split, BucketId shared);

}  // namespace orrery::plan
