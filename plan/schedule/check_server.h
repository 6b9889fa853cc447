#pragma once
/// What the checker asks of a schedule with a parameter server (plan/lower/parameter_server.h).
#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// S14: of every bucket the server applies each worker's gradient once, in their order, all of the same training step.
void check_server(const Schedule& schedule, base::Diagnostics& found);

}  // namespace orrery::plan
