// Which layers have experts.
#include "models/experts.h"

namespace orrery::models {

std::int64_t Experts::layers_of(std::int64_t layers) const {
  std::int64_t count_of = 0;
  for (std::int64_t i = 0; i < layers; ++i)
    if (in_layer(i)) ++count_of;
  return count_of;
}

}  // namespace orrery::models
