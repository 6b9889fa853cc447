#pragma once
/// Checks of schedules with a parameter server (plan/lower/parameter_server.h).
#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// S14: on every bucket, and on sharded tables, the server applies each worker's gradient once, in worker order, all of
/// one training step.
void check_server(const Schedule& schedule, base::Diagnostics& found);

}  // namespace orrery::plan
