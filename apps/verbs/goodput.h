#pragma once
/// What simulate says beside the step: a checkpoint's cost, and what failures leave of the run.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/command_line.h"
#include "apps/inputs.h"
#include "cost/results.h"
#include "reports/table.h"

namespace orrery::apps {

/// Adds `checkpoint` to `json`, and `goodput` where failures are asked for or the cluster is of GPUs; their words to
/// `text`. What is no time is the error.
[[nodiscard]] base::Result<bool> add_goodput(const FailureOptions& options, const LoadedPlan& loaded,
                                             const plan::Schedule& schedule, const cost::Pricing& pricing,
                                             double step_time_s, const reports::TableStyle& style, nlohmann::json& json,
                                             std::string& text);

}  // namespace orrery::apps
