#pragma once
/// Goodput under failures, in closed form: random failures, and faults at a fixed period.
///
/// Useful time is the time of training steps that count in the end. The rest goes to checkpoint pauses, to restarts,
/// and to lost work: steps and pauses that are done again. All times in seconds. Every input is allowed, including
/// infinity and zero, and no result is NaN.
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace orrery::cost {

/// An infinite interval or mean time between failures.
inline constexpr double kForever = std::numeric_limits<double>::infinity();

/// Failure rates of published GPU fleets: GPU-hours of the whole job per interruption.
struct Fleet {
  const char* name;
  double gpu_hours;
  const char* source;
};
[[nodiscard]] std::span<const Fleet> fleets();  ///< "good" first: the default
/// Null if there is no fleet of that name.
[[nodiscard]] const Fleet* fleet_named(std::string_view name);

/// The costs of a failure and of a checkpoint.
struct Reliability {
  double mtbf = std::numeric_limits<double>::infinity();  ///< mean time between failures of the whole system
  double restart = 0;                                     ///< from a failure until steps go on
  double pause = 0;                                       ///< how long a checkpoint pauses the steps
  double persist = 0;                                     ///< from the end of the pause until the checkpoint is durable
};

/// Shares of the time, which sum to 1.
struct Goodput {
  double interval = 0;  ///< useful seconds between two checkpoints
  double useful = 0, checkpoint = 0, lost = 0, restart = 0;
  double lost_per_failure = 0;  ///< seconds
};

/// Random failures at any moment (exponential, also during restarts and while a checkpoint is written), with a
/// checkpoint after every `interval` of useful work. Exact: with T, M, R, C, D for interval, mtbf, restart, pause and
/// persist, a checkpoint becomes durable every E = M e^{(R+D)/M} (e^{(T+C)/M} - 1), and useful is T / E. A checkpoint
/// that is due before the last one is durable waits for it: if T < D, E = M e^{(R+T)/M} (e^{(C+D)/M} - 1).
[[nodiscard]] Goodput goodput(double interval, const Reliability& system);

/// Young (1974): sqrt(2 C M).
[[nodiscard]] double young_interval(double pause, double mtbf);
/// The interval with the largest goodput: the root of (1 - T/M) e^{(T+C)/M} = 1, but at least the time that a
/// checkpoint needs to become durable. Infinite if nothing fails.
[[nodiscard]] double best_interval(const Reliability& system);
/// The same in whole training steps, at least 1; 0 (never) if nothing fails.
[[nodiscard]] std::int64_t best_steps(double step, const Reliability& system);
/// 1 - sqrt(2 C / M) - (R + D) / M: accurate if C and R are far below M, negative if they are far above.
[[nodiscard]] double first_order_goodput(const Reliability& system);

/// Faults at a fixed period, independent of the run's progress: a test's schedule.
struct PeriodicGoodput {
  Goodput shares;              ///< with the fault anywhere between two checkpoints: a long test's mean
  double regular = 0;          ///< useful share if nothing ever varies: it steps around the average
  double steps_per_fault = 0;  ///< steps that count in the end
  double checkpoints_per_fault = 0;
};
/// A fault every `period`, a checkpoint every `steps` steps of `step` seconds; ignores system.mtbf. Between a restart
/// and the next fault lie U = period - restart seconds, in which floor((U - min(D, T)) / (T + C + max(0, D - T)))
/// checkpoints become durable, T = steps x step. Averaged over the fault's position between two of them, the number is
/// the quotient less one half.
[[nodiscard]] PeriodicGoodput periodic_goodput(double period, std::int64_t steps, double step,
                                               const Reliability& system);

}  // namespace orrery::cost
