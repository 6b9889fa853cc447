#pragma once
/// What simulate and report add to the step: the cost of a checkpoint, and what failures leave of the run.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "apps/inputs.h"
#include "cost/results.h"
#include "reports/goodput.h"
#include "reports/table.h"

namespace orrery::apps {

/// Forecast of a plan's run.
struct RunForecast {
  reports::CheckpointForecast checkpoint;
  std::optional<cost::Forecast> forecast;  ///< if failures are asked for, or the cluster has GPUs
};
/// Error if a time in the options is invalid.
[[nodiscard]] base::Result<RunForecast> forecast_of(const FailureOptions& options, const LoadedPlan& loaded,
                                                    const plan::Schedule& schedule, const cost::Pricing& pricing,
                                                    double step_time_s);

/// Adds `checkpoint` to `json`, and `goodput` if there is a forecast; adds their text to `text`.
[[nodiscard]] base::Result<bool> add_goodput(const FailureOptions& options, const LoadedPlan& loaded,
                                             const plan::Schedule& schedule, const cost::Pricing& pricing,
                                             double step_time_s, const reports::TableStyle& style, nlohmann::json& json,
                                             std::string& text);

}  // namespace orrery::apps
