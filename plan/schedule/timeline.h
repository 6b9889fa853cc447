#pragma once
/// Timeline: what ran where, from when to when; one type for predicted and measured. `plan/` may carry seconds here but
/// never makes them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

enum class Origin { predicted, measured };

/// One executed step. Times in seconds on one clock, from the start of the step (training step).
struct Span {
  std::int32_t rank = 0;
  std::int32_t iteration = 0;  ///< training step
  StepRef at;                  ///< place in the class's program
  std::int32_t micro_batch = -1;
  double ready = 0;  ///< the rank could start: the steps that it waits for on this rank had finished
  double start = 0;  ///< for a receive or collective: the last peer has arrived (before that it is waiting)
  double end = 0;
};

/// The typical time of one operator of a compute step, where the executor measured within steps.
struct OperatorTime {
  std::int32_t rank_class = 0, block = 0, step = 0, op = 0;  ///< places in the schedule: Step::ops[op]
  std::int64_t count = 0;                                    ///< measured executions, over ranks and training steps
  double seconds = 0;
};

struct Timeline {
  Origin origin = Origin::predicted;
  PlanSpec spec;
  std::vector<Span> spans;
  std::vector<OperatorTime> operators;  ///< measured; empty where a backend cannot tell them apart
  double step_time = 0;                 ///< seconds; measured: median over iterations
  bool oversubscribed = false;          ///< more ranks than cores: not for calibration
};

/// timeline.json, format_version 1.0; spans are rows of a columns/rows table.
[[nodiscard]] std::string write_timeline(const Timeline& timeline, const Schedule& schedule);
[[nodiscard]] base::Result<Timeline> parse_timeline(std::string_view text, std::string file);

}  // namespace orrery::plan
