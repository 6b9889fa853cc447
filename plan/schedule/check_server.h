#pragma once
/// Checks of schedules with a parameter server (plan/lower/parameter_server.h).
#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// S14: for every bucket, and for sharded tables, the server applies each worker's gradient of one and the same
/// training step once, in the order of the workers.
void check_server(const Schedule& schedule, base::Diagnostics& found);

}  // namespace orrery::plan
