// Products of the named degrees against the number of devices.
#include "sim/search/obstacle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/search/space.h"

namespace orrery::sim {
namespace {

struct Named {
  const char* key;
  const std::vector<int>& values;
};

/// "data 8", "tensor 4 or 8".
std::string text_of(const Named& one) {
  return fmt::format("{} {}", one.key, fmt::join(one.values, " or "));
}

}  // namespace

std::string mesh_obstacle(const plan::Bounds& bounds, int devices) {
  std::vector<Named> named;
  for (const Named& one : {Named{"data", bounds.mesh.data}, Named{"tensor", bounds.mesh.tensor},
                           Named{"pipeline", bounds.mesh.pipeline}, Named{"context", bounds.mesh.context}})
    if (!one.values.empty()) named.push_back(one);
  if (named.empty()) return {};
  std::vector<std::int64_t> products = {1};
  std::string all;
  for (const Named& one : named) {
    std::vector<std::int64_t> next;
    for (const std::int64_t product : products)
      for (const int value : one.values) next.push_back(product * value);
    products = std::move(next);
    all += (all.empty() ? "" : " x ") + text_of(one);
  }
  const bool every = !bounds.mesh.data.empty() && !bounds.mesh.tensor.empty() && !bounds.mesh.pipeline.empty();
  const auto fills = [&](std::int64_t product) { return every ? product == devices : devices % product == 0; };
  if (std::any_of(products.begin(), products.end(), fills)) return {};
  const std::int64_t least = *std::min_element(products.begin(), products.end());
  if (least > devices)
    return fmt::format("{} takes {}, but the cluster has {}", all, base::count_of(least, "device"), devices);
  if (every)
    return fmt::format("{} takes {}, but the cluster has {}: all take part", all, base::count_of(least, "device"),
                       devices);
  return fmt::format("{} does not divide the cluster's {}; {} do", all, base::count_of(devices, "device"),
                     fmt::join(divisors(devices), ", "));
}

}  // namespace orrery::sim
