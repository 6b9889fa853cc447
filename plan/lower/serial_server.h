#pragma once
/// A parameter server's workers on one rank (plan/lower/parameter_server.h): they take turns with weights of one
/// version, and the optimizer makes a step for each worker's gradient. Private to plan/.
#include "plan/lower/serial_step.h"

namespace orrery::plan {

void serve_in_turns(SerialStep& to, const Plan& split);

}  // namespace orrery::plan
