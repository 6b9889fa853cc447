#pragma once
/// Turns a plan file into the questions that sim/explain/ answers.
#include <vector>

#include "apps/inputs.h"
#include "cost/results.h"
#include "sim/explain/what_if.h"

namespace orrery::apps {

[[nodiscard]] sim::Question question_of(const LoadedPlan& loaded, const std::vector<cost::Calibration>& calibrations,
                                        const cost::Intervals& intervals);

/// The replay that `simulate` prints.
[[nodiscard]] cost::Prediction replay_of(const LoadedPlan& loaded, const std::vector<cost::Calibration>& calibrations);

}  // namespace orrery::apps
