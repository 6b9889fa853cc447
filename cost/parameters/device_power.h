#pragma once
/// How fast a device's matrix products are at the power that it may draw (docs/formulas.md, Products and power).
#include "clusters/cluster.h"

namespace orrery::cost {

/// The device on which a family's best product was measured.
struct ProductsMeasured {
  base::Watts power, idle;
  int multiprocessors = 1;
};

/// The best product of another device of the family over that of the measured one, where power alone bounds both.
/// Dynamic power is c n V^2 f; voltage V follows the frequency f, so P - idle = c n f^3. The rate follows n f, so it
/// follows n^(2/3) (P - idle)^(1/3). n: multiprocessors. Without work it draws no more than the measured one. 1 if it
/// gives no power; what it may draw is more than what it draws without work (clusters/device.cpp).
[[nodiscard]] double products_beside(const ProductsMeasured& measured, const clusters::Device& device);

}  // namespace orrery::cost
