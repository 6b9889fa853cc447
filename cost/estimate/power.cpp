/// Energy of a step.
#include "cost/estimate/power.h"

#include <algorithm>

namespace orrery::cost {

Energy energy_of(const Breakdown& breakdown, double step_time, const clusters::Cluster& cluster) {
  Energy out;
  const clusters::Device& device = cluster.device();
  const double rated = device.power.value;
  if (rated <= 0 || step_time <= 0) return out;
  const double idle = device.idle_power.value;
  const double moving = std::clamp(breakdown.exposed(), 0.0, step_time);
  const double waiting =
      std::clamp(breakdown.bubble + breakdown.imbalance + breakdown.overhead, 0.0, step_time - moving);
  const double active = step_time - moving - waiting + kMovingShare * moving + kWaitingShare * waiting;
  out.devices = cluster.size() * (idle * step_time + (rated - idle) * active);
  out.hosts = cluster.nodes * cluster.power.host.value * step_time;
  if (cluster.nodes > 1) out.network = cluster.nodes * cluster.power.network.value * step_time;
  out.facility = (cluster.power.pue - 1) * (out.devices + out.hosts + out.network);
  return out;
}

}  // namespace orrery::cost
