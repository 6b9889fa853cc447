#pragma once
/// Gradients in fewer bits (plan/lower/compress.h) on one rank: replicas in turn, each rounded or multiplied by Q by
/// itself. Private to plan/.
#include "plan/lower/serial_step.h"

namespace orrery::plan {

/// `shared`: the bucket of a tied table, if there is one.
void compress_in_turns(SerialStep& to, const Plan& split, BucketId shared);

}  // namespace orrery::plan
