#pragma once
/// Joins every rank's raw spans into one measured Timeline: one clock, one origin per training step, and for receives
/// and collectives the moment when the last member arrived.
#include <string>
#include <vector>

#include "exec/engine/clock.h"
#include "exec/engine/execute.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::exec {

/// What a rank contributes: its steps' begins and ends, its spans, its operators' times and its clock.
struct RankRecord {
  ClockLine clock;
  std::vector<IterationRecord> iterations;
  std::vector<RawSpan> spans;
  std::vector<OperatorRecord> operators;
};

[[nodiscard]] std::string pack(const RankRecord& record);
[[nodiscard]] RankRecord unpack(const std::string& bytes);

/// `records` by rank. step_time is the median over iterations of (last end - first begin), without the first iteration
/// if there are at least three.
[[nodiscard]] plan::Timeline measured_timeline(const plan::Schedule& schedule, const std::vector<RankRecord>& records,
                                               bool oversubscribed);

/// The middle value (mean of the middle two); 0 if empty.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace orrery::exec
