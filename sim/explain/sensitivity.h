#pragma once
/// Which numbers a plan's step time hangs on: each datasheet rate of the machine and each coefficient of its prices a
/// little less and a little more, the plan as it is.
#include <vector>

#include "sim/explain/what_if.h"

namespace orrery::sim {

/// At most `most`, largest swing first. Those that the closed form says to matter most are replayed. Of a
/// recommendation model, which has no closed form, the machine's rates alone.
[[nodiscard]] std::vector<cost::Sensitivity> sensitivities(const Question& question, std::size_t most,
                                                           const GoOn& go_on);

}  // namespace orrery::sim
