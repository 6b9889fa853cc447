#pragma once
/// What simulate and report add to the step: the cost of a checkpoint, and how much of the run failures leave as
/// useful.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apps/flags.h"
#include "apps/inputs.h"
#include "cost/results.h"
#include "reports/goodput.h"
#include "reports/tables/table.h"

namespace orrery::apps {

/// Assumptions of simulate and report about failures; times are text with units.
struct FailureOptions {
  std::string mtbf;         ///< of the whole system; "inf": no failures
  double per_gpu_hour = 0;  ///< failures; 0: not given
  std::string fleet;        ///< name of a published fleet whose rate to use
  std::string period;       ///< of periodic faults, instead of random failures
  std::string restart_time, step_time, checkpoint_pause, checkpoint_write;
  std::int64_t checkpoint_every = 0;  ///< steps; 0: the best number
  double tokens = 0;                  ///< of the run; 0: the number that the job's steps read
  [[nodiscard]] bool any() const {
    return !mtbf.empty() || per_gpu_hour > 0 || !fleet.empty() || !period.empty() || !restart_time.empty() ||
           !step_time.empty() || !checkpoint_pause.empty() || !checkpoint_write.empty() || checkpoint_every > 0 ||
           tokens > 0;
  }
};
/// `tokens`: the name of the flag that says how long the run is.
void add_failures(Flags flags, FailureOptions& options, const char* tokens);

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
