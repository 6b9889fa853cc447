/// The rate of matrix products at the power that a device may draw.
#include "cost/parameters/device_power.h"

#include <algorithm>
#include <cmath>

namespace orrery::cost {

double products_beside(const ProductsMeasured& measured, const clusters::Device& device) {
  if (device.power.value <= 0) return 1;
  const double idle = std::min(device.idle_power.value, measured.idle.value);
  const double parts = static_cast<double>(device.multiprocessors) / measured.multiprocessors;
  const double power = (device.power.value - idle) / (measured.power.value - measured.idle.value);
  return std::cbrt(parts * parts * power);
}

}  // namespace orrery::cost
