#pragma once
/// What failures leave of a run's time, in closed form: failures that come at random, and faults at a fixed period.
///
/// Useful is the time of the training steps that stand in the end. The rest went into checkpoints that held the steps
/// up, into restarts, and into work that was lost: steps, and pauses of checkpoints, that were done again.
/// All times in seconds. Every input is allowed, infinite and zero ones too, and no result is a NaN.
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace orrery::cost {

/// An interval or a mean time between failures without end.
inline constexpr double kForever = std::numeric_limits<double>::infinity();

/// How often published fleets of GPUs failed: GPU-hours of the whole job for each interruption of it.
struct Fleet {
  const char* name;
  double gpu_hours;
  const char* source;
};
[[nodiscard]] std::span<const Fleet> fleets();  ///< "good" first: the default
/// Null where no fleet has that name.
[[nodiscard]] const Fleet* fleet_named(std::string_view name);

/// What a failure and a checkpoint cost.
struct Reliability {
  double mtbf = std::numeric_limits<double>::infinity();  ///< mean time between failures of the whole system
  double restart = 0;                                     ///< from a failure until steps go on: found, started, loaded
  double pause = 0;                                       ///< that a checkpoint holds the steps up
  double persist = 0;  ///< from the end of the pause until the checkpoint would outlive a failure
};

/// Where the time goes: shares, whose sum is 1.
struct Goodput {
  double interval = 0;  ///< useful seconds between two checkpoints
  double useful = 0, checkpoint = 0, lost = 0, restart = 0;
  double lost_per_failure = 0;  ///< seconds
};

/// Failures that come at random at any moment (exponential, in restarts and while a checkpoint is written too), with a
/// checkpoint after every `interval` of useful work. Exact: with T, M, R, C, D as interval, mtbf, restart, pause and
/// persist, a checkpoint becomes durable every E = M e^{(R+D)/M} (e^{(T+C)/M} - 1), and useful is T / E. A checkpoint
/// that is due before the last one is durable waits for it: where T < D, E = M e^{(R+T)/M} (e^{(C+D)/M} - 1).
[[nodiscard]] Goodput goodput(double interval, const Reliability& system);

/// Young (1974): sqrt(2 C M).
[[nodiscard]] double young_interval(double pause, double mtbf);
/// The interval of the largest goodput: the root of (1 - T/M) e^{(T+C)/M} = 1, but no shorter than the time a
/// checkpoint needs to become durable. Infinite where nothing fails.
[[nodiscard]] double best_interval(const Reliability& system);
/// The same in whole training steps, at least 1; 0 where nothing fails: never.
[[nodiscard]] std::int64_t best_steps(double step, const Reliability& system);
/// 1 - sqrt(2 C / M) - (R + D) / M: good while C and R are far below M, negative far above.
[[nodiscard]] double first_order_goodput(const Reliability& system);

/// Faults at a fixed period, whatever the run is doing: a test's schedule.
struct PeriodicGoodput {
  Goodput shares;              ///< with the fault anywhere between two checkpoints: what a long test measures
  double regular = 0;          ///< useful share where nothing ever varies: a staircase through the other
  double steps_per_fault = 0;  ///< that stand
  double checkpoints_per_fault = 0;
};
/// A fault every `period`, a checkpoint every `steps` of `step` seconds each; system.mtbf does not count. Between a
/// restart and the next fault lie U = period - restart seconds, in which floor((U - min(D, T)) / (T + C + max(0, D -
/// T))) checkpoints become durable, T = steps x step. Over all places of the fault between two of them that is the
/// quotient less a half.
[[nodiscard]] PeriodicGoodput periodic_goodput(double period, std::int64_t steps, double step,
                                               const Reliability& system);

}  // namespace orrery::cost
