#pragma once
/// A scaling study as plain records: how a job performs on more and more devices, what each size loses and why, and
/// what a run would cost there. sim/scaling/ makes one, reports/ shows it. Seconds, bytes, dollars, joules;
/// docs/formulas.md has the definitions. "Tokens" are samples if the model has tables instead of tokens.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "cost/interval.h"
#include "cost/results.h"

namespace orrery::cost {

/// strong: the same batch on more devices; weak: the batch grows with the devices.
enum class Scaling : std::uint8_t { strong, weak };
[[nodiscard]] constexpr const char* name_of(Scaling scaling) {
  return scaling == Scaling::strong ? "strong" : "weak";
}

/// Where device time goes: the parts of cost::Breakdown.
enum class Cause : std::uint8_t {
  compute,
  recompute,
  optimizer,
  bubble,
  imbalance,
  tensor,
  context,
  exchange,
  data,
  pipeline,
  copies,
  contention,
  host,
};
struct CauseWords {
  Cause cause;
  const char *key, *name, *says;  ///< for JSON and CSV; for people; its meaning
};
inline constexpr std::array<CauseWords, 13> kCauses{{
    {Cause::compute, "compute", "compute", "forward and backward; smaller pieces run at a lower rate"},
    {Cause::recompute, "recompute", "recomputation", "forward passes that are done again"},
    {Cause::optimizer, "optimizer", "optimizer", "the update, and what stands beside it"},
    {Cause::bubble, "bubble", "bubble", "waiting for another stage while the pipeline fills and drains"},
    {Cause::imbalance, "imbalance", "imbalance", "waiting for stages or ranks that have more to do"},
    {Cause::tensor, "tensor", "tensor comm.", "exposed communication of tensor parallelism"},
    {Cause::context, "context", "context comm.", "exposed communication of context parallelism"},
    {Cause::exchange, "exchange", "all-to-all", "exposed exchange of tokens with experts, or of embeddings"},
    {Cause::data, "data", "data comm.", "exposed reduction and gathering over replicas"},
    {Cause::pipeline, "pipeline", "pipeline comm.", "exposed messages between stages"},
    {Cause::copies, "copies", "copies", "exposed copies of what is offloaded"},
    {Cause::contention, "contention", "contention", "what messages take longer because they share links"},
    {Cause::host, "host", "host", "the software's cost of a step outside the schedule"},
}};
using ByCause = std::array<double, kCauses.size()>;  ///< in the order of kCauses

/// A degree of the plan that changed from the previous size.
struct Grown {
  std::string dimension;  ///< "data", "tensor", "pipeline", "context", "expert"
  int from = 1, to = 1;
};

/// A whole run at one size.
struct RunCost {
  double seconds = 0;
  std::optional<Interval> seconds_interval;
  double usd = 0;     ///< 0: the devices have no price
  double joules = 0;  ///< 0: their power is unknown
  double co2_grams = 0;
};

/// A measured run of the same job at some size, with any plan.
struct MeasuredPoint {
  std::string source;  ///< run directory, or a published row's name
  std::string plan;    ///< in words
  int devices = 0;
  std::int64_t batch = 0;
  double step_time_s = 0;
  double predicted_s = 0;  ///< with that plan; 0: not predicted
  bool published = false;  ///< a row of a file; rows of its kind may have been used to choose the stack's numbers
  bool best_plan = false;  ///< its plan is the one of this point
};

struct ScalingPoint {
  int devices = 0, nodes = 0;
  std::int64_t batch = 0;          ///< sequences per step
  std::optional<Prediction> best;  ///< none: `reason` says why
  std::string reason;
  std::string stack, evidence, evidence_text;  ///< the basis of the prediction, as the verb `plan` states it
  std::optional<Interval> factors;             ///< measured over predicted step times for this kind of software
  std::optional<Interval> step_time_s, tokens_per_s_per_device_interval;
  double tokens_per_s_per_device = 0;
  double efficiency = 0;  ///< tokens/s per device / that of the series' first point with a plan
  std::optional<Interval> efficiency_interval;
  ByCause seconds_by_cause{};  ///< device-seconds per token; they sum to 1 / tokens_per_s_per_device
  /// Compared with the previous point that has a plan: its index in the series, and what each cause adds in
  /// device-seconds per token and loses in efficiency; each sums to the whole change.
  std::optional<std::size_t> before;
  ByCause seconds_added{}, efficiency_lost{};
  double marginal = std::numeric_limits<double>::quiet_NaN();  ///< throughput gained / devices added, both relative
  std::vector<Grown> grown;
  std::optional<RunCost> run;  ///< for a budget of tokens
};

/// One job at all sizes.
struct ScalingSeries {
  std::size_t job = 0;  ///< its index among the given jobs
  std::string model, cluster, device, precision;
  clusters::DeviceKind kind = clusters::DeviceKind::gpu;
  double parameters = 0;
  double memory_bytes = 0;  ///< per device
  std::int64_t sequence = 0;
  std::int64_t batch = 0;  ///< at the smallest size; in weak scaling it grows from there
  bool samples = false;    ///< a recommendation model
  Scaling scaling = Scaling::strong;
  std::string held;                  ///< the plan used at every size, in words; empty: each size has its best
  std::vector<ScalingPoint> points;  ///< by size, ascending
  std::vector<MeasuredPoint> measured;
  int pays_up_to = 0;       ///< devices up to which all growth pays (ScalingStudy::pays); 0: no two sizes
  int stops_paying_at = 0;  ///< the first size whose growth does not pay; 0: none
};

/// A point of a study.
struct Place {
  std::size_t series = 0, point = 0;
};

/// Ways to train one model on the budget, within the deadline if there is one.
struct Ways {
  std::string model;
  std::optional<Place> cheapest, smallest, fastest;  ///< smallest: fewest devices; none: no point meets the deadline
  std::optional<Place> nearest;                      ///< if no point meets it: the one that misses it least
};

struct ScalingStudy {
  std::vector<ScalingSeries> series;
  /// Growth pays if at least this share of the added devices becomes throughput.
  double pays = 0.5;
  std::optional<double> tokens;  ///< budget
  std::optional<double> deadline_s;
  double co2_grams_per_kwh = 0;
  std::string co2_source;
  std::vector<Ways> ways;    ///< by model; only with a budget
  bool interrupted = false;  ///< points are missing
};

[[nodiscard]] inline bool any_plan(const ScalingStudy& study) {
  for (const ScalingSeries& one : study.series)
    for (const ScalingPoint& point : one.points)
      if (point.best) return true;
  return false;
}

}  // namespace orrery::cost
