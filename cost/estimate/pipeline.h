#pragma once
/// A pipeline of stages, pass by pass: each rank's clock runs through the passes of its turns (rank_clock.h), and ranks
/// wait for each other's messages. Many micro-batches are extrapolated from a few: once the pipeline is full, a period
/// of one turn per stage repeats.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cost/estimate/rank_clock.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// What a stage runs.
struct StageProgram {
  std::shared_ptr<const std::vector<ChunkPrograms>> chunks;
  std::vector<PassStep> begin;  ///< what it does before its passes
};

struct PipelineTimes {
  std::vector<StageProgram> stages;
  /// Seconds of a transfer between stages s and s + 1; the last one: from the last stage to the first, which
  /// interleaved chunks need. At least one fewer than stages.
  std::vector<double> hop;
  RankClock::Overlaps overlaps = {};
};

/// Seconds, by stage.
struct PipelineResult {
  std::vector<double> end;       ///< until its last pass has finished and all that it has sent has arrived
  std::vector<double> reduced;   ///< the part of `end` that is due to messages after the last pass
  std::vector<double> transfer;  ///< waits for transfers between stages
  std::vector<double> late_forward, late_backward;          ///< by how much the host prolongs passes
  std::vector<std::array<double, plan::kStreams>> exposed;  ///< waits for other messages
};

/// `spec`: order, stages and chunks. A receive begins when the passes before it have ended (the order of steps in
/// plan/schedule/schedule.h). Where passes are whole, a stage computes on only when the message that it sent has
/// arrived; split passes free that memory later.
[[nodiscard]] PipelineResult pipeline(const PipelineTimes& times, const plan::PlanSpec& spec,
                                      std::int64_t micro_batches);

}  // namespace orrery::cost
