#pragma once
/// What simulate and report say beside the step: a checkpoint's cost, and what failures leave of the run.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "apps/inputs.h"
#include "cost/results.h"
#include "reports/goodput.h"
#include "reports/table.h"

namespace orrery::apps {

/// Of a plan's run.
struct RunForecast {
  reports::CheckpointForecast checkpoint;
  std::optional<cost::Forecast> forecast;  ///< where failures are asked for, or the cluster is of GPUs
};
/// What is no time is the error.
[[nodiscard]] base::Result<RunForecast> forecast_of(const FailureOptions& options, const LoadedPlan& loaded,
                                                    const plan::Schedule& schedule, const cost::Pricing& pricing,
                                                    double step_time_s);

/// Adds `checkpoint` to `json`, and `goodput` where there is a forecast; their words to `text`.
[[nodiscard]] base::Result<bool> add_goodput(const FailureOptions& options, const LoadedPlan& loaded,
                                             const plan::Schedule& schedule, const cost::Pricing& pricing,
                                             double step_time_s, const reports::TableStyle& style, nlohmann::json& json,
                                             std::string& text);

}  // namespace orrery::apps
