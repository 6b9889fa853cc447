#pragma once
/// What bounds a step: the part of it that a better plan or machine would have to shorten.
#include <string>

#include "cost/results.h"

namespace orrery::reports {

struct Binding {
  std::string part;      ///< "compute", or the largest loss: "bubble", "tensor communication" … (parts_of)
  double seconds = 0;    ///< of the mean rank's step
  double share = 0;      ///< of the step
  std::string sentence;  ///< for people, with the largest loss
};
/// Compute, unless a loss takes a quarter of the step; then the largest loss. Recomputation counts as a loss.
[[nodiscard]] Binding binding_of(const cost::Prediction& prediction);

}  // namespace orrery::reports
