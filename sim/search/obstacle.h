#pragma once
/// Says in numbers why a job's bounds leave no plan to look at.
#include <string>

#include "plan/spec/job.h"

namespace orrery::sim {

/// "data 8 x tensor 2 takes 16 devices, but the cluster has 8": the least product of the named degrees against the
/// number of devices. Empty if some named combination divides it.
[[nodiscard]] std::string mesh_obstacle(const plan::Bounds& bounds, int devices);

}  // namespace orrery::sim
