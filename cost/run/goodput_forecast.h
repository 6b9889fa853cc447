#pragma once
/// A run of a plan with failures: what is asked, and what comes of it. reports/goodput.h shows it.
#include <cstdint>
#include <optional>
#include <string>

#include "cost/run/checkpoint.h"
#include "cost/run/goodput.h"

namespace orrery::cost {

/// A number with where it comes from.
struct Sourced {
  double value = 0;
  std::string source;
};
/// From a failure until steps go on, where nobody says how long; seconds.
[[nodiscard]] Sourced usual_restart(clusters::DeviceKind kind);

/// When it fails: at random or at a fixed period.
struct FailureModel {
  Sourced mtbf;                  ///< of the whole system, s; may be infinite
  double per_device_hour = 0;    ///< failures; 0: not known as such
  std::optional<double> period;  ///< s between two faults, in place of the rest
};
/// Of a rate per device-hour, on so many devices.
[[nodiscard]] FailureModel failures_at(double per_device_hour, int devices, std::string source);

struct ForecastRequest {
  FailureModel failures;
  Sourced restart;
  double step = 0;  ///< s
  CheckpointPrice checkpoint;
  std::int64_t every = 0;  ///< steps between checkpoints; 0: the best number
  std::int64_t steps = 0;  ///< of the run
  double tokens_per_step = 0;
};

struct Forecast {
  ForecastRequest asked;
  Reliability system;
  std::int64_t every = 0;       ///< steps between checkpoints; 0: never, where nothing fails
  Goodput now;                  ///< at `every`
  std::int64_t best_every = 0;  ///< 0: never
  Goodput best;
  double young = 0;                         ///< Young's interval, s
  double first_order = 0;                   ///< goodput by the first-order formula at it
  std::optional<PeriodicGoodput> periodic;  ///< of faults at a fixed period; then there is neither best nor Young's
  double run_without = 0;                   ///< s of the run's steps and checkpoints without failures
  double run = 0;                           ///< with them; infinite where nothing is ever committed
  double failures = 0;                      ///< in that time
};
[[nodiscard]] Forecast forecast(const ForecastRequest& request);

}  // namespace orrery::cost
