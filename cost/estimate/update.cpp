// Updates and gathers, each after what it waits for.
#include "cost/estimate/update.h"

#include <algorithm>

namespace orrery::cost {

void UpdateChain::add(const Part& part) {
  waits_ = waits_ || part.directions > 0;
  for (std::int64_t i = 0; i < part.count; ++i) {
    computed_ += part.directions;
    if (part.meet > 0) computed_ = gathered_ = std::max(gathered_, computed_) + part.meet;
    computed_ += part.update;
    gathered_ = std::max(gathered_, computed_) + part.gather;
  }
  const auto count = static_cast<double>(part.count);
  updates_ += count * (part.directions + part.meet + part.update);
  gathers_ += count * part.gather;
}

std::pair<double, double> UpdateChain::times(bool overlaps) const {
  if (!overlaps) return {updates_, gathers_};
  return {waits_ ? computed_ : updates_, std::max(0.0, gathered_ - computed_)};
}

}  // namespace orrery::cost
