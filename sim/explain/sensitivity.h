#pragma once
/// The numbers that determine a plan's step time: varies each datasheet rate of the machine and each coefficient of its
/// prices by a little, with the plan unchanged.
#include <vector>

#include "sim/explain/what_if.h"

namespace orrery::sim {

/// At most `most`, largest swing first; those that matter most in the closed form are replayed. For a recommendation
/// model, which has no closed form, only the machine's rates.
[[nodiscard]] std::vector<cost::Sensitivity> sensitivities(const Question& question, std::size_t most,
                                                           const GoOn& go_on);

}  // namespace orrery::sim
