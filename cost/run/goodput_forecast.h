#pragma once
/// The forecast of a plan's run with failures: request and result. reports/goodput.h shows it.
#include <cstdint>
#include <optional>
#include <string>

#include "cost/run/checkpoint.h"
#include "cost/run/goodput.h"

namespace orrery::cost {

/// A number and its source.
struct Sourced {
  double value = 0;
  std::string source;
};
/// Default time from a failure until steps continue; seconds.
[[nodiscard]] Sourced usual_restart(clusters::DeviceKind kind);

/// Failures at random or at a fixed period.
struct FailureModel {
  Sourced mtbf;                  ///< of the whole system, s; may be infinite
  double per_device_hour = 0;    ///< failures; 0: not given this way
  std::optional<double> period;  ///< s between faults; replaces the other fields
};
/// From a rate per device-hour and the number of devices.
[[nodiscard]] FailureModel failures_at(double per_device_hour, int devices, std::string source);

struct ForecastRequest {
  FailureModel failures;
  Sourced restart;
  double step = 0;  ///< s
  CheckpointPrice checkpoint;
  std::int64_t every = 0;  ///< steps between checkpoints; 0: the best number
  std::int64_t steps = 0;  ///< in the run
  double tokens_per_step = 0;
};

struct Forecast {
  ForecastRequest asked;
  Reliability system;
  std::int64_t every = 0;       ///< steps between checkpoints; 0: never, if nothing fails
  Goodput now;                  ///< at `every`
  std::int64_t best_every = 0;  ///< 0: never
  Goodput best;
  double young = 0;                         ///< Young's interval, s
  double first_order = 0;                   ///< goodput at that interval, by the first-order formula
  std::optional<PeriodicGoodput> periodic;  ///< for faults at a fixed period; `best` and `young` are then unset
  double run_without = 0;                   ///< s for the run's steps and checkpoints without failures
  double run = 0;                           ///< with failures; infinite if nothing is ever committed
  double failures = 0;                      ///< during that time
};
[[nodiscard]] Forecast forecast(const ForecastRequest& request);

}  // namespace orrery::cost
