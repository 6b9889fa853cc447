#pragma once
/// A pipeline of stages, pass by pass: each rank's clock runs through the passes of its turns (rank_clock.h), and ranks
/// wait for each other's messages. Many micro-batches are extrapolated from a few: once the pipeline is full, a period
/// of one turn per stage repeats.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_moves.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// What a stage runs.
struct StageProgram {
  /// By virtual stage, at least one; equal neighbours are one object.
  std::vector<std::shared_ptr<const ChunkPrograms>> chunks;
  std::vector<PassStep> begin;  ///< what it does before its passes
  double update = 0;            ///< asynchronous orders: seconds of all else of a training step, after its last pass
  /// Asynchronous orders: seconds of gathers of parameters behind it. The step's first forward pass from then on waits
  /// for them: the passes before it use older weights.
  double gather = 0;
  /// By virtual stage, for a lower bound: seconds of copies from one pass's first operator to the next one's, and of
  /// all that come for one micro-batch. None: nothing is copied.
  struct Copies {
    double forward = 0, backward = 0, in = 0;
    double first = 0;  ///< of `in`: for a forward pass, before which it needs no input
  };
  std::vector<Copies> copies = {};
  std::shared_ptr<StreamRates> rates = nullptr;  ///< null: no stream of its ranks slows another one down
  /// Which links the streams cross; null: not known, or of no account.
  std::shared_ptr<const StreamRates::Lanes> lanes = nullptr;
};

struct PipelineTimes {
  std::vector<StageProgram> stages;
  /// Seconds of a transfer between stages s and s + 1; the last one: from the last stage to the first, which
  /// interleaved chunks need. At least one fewer than stages.
  std::vector<double> hop;
  /// Stages in a row whose messages share links.
  struct Neighbours {
    std::size_t first = 0, count = 0;
    std::shared_ptr<StreamRates> rates;
  };
  std::vector<Neighbours> neighbours = {};
  RankClock::Overlaps overlaps = {};
  bool tied = false;  ///< asynchronous orders: both ends of the pipeline wait for each other before they update
};

/// Seconds, by stage.
struct PipelineResult {
  std::vector<double> end;       ///< until its last pass has finished and all that it has sent has arrived
  std::vector<double> issued;    ///< until its host has issued all that
  std::vector<double> reduced;   ///< the part of `end` that is due to messages after the last pass
  std::vector<double> transfer;  ///< waits for transfers between stages
  std::vector<double> late_forward, late_backward;          ///< by how much the host prolongs passes
  std::vector<std::array<double, plan::kStreams>> exposed;  ///< waits for other messages
};

/// For an asynchronous order these are the times of a training step once the pipeline is full, and `end` is the time
/// from update to update. If only passes take time and the ends are not tied, it is what the stage with the most work
/// needs, and equal stages never wait (Narayanan et al. 2019, section 3.2).
///
/// `spec`: order, stages and chunks. A receive begins when the passes before it have ended (the order of steps in
/// plan/schedule/schedule.h). Where passes are whole, a stage continues computing only when the message that it sent
/// has arrived; split passes free that memory later.
[[nodiscard]] PipelineResult pipeline(const PipelineTimes& times, const plan::PlanSpec& spec,
                                      std::int64_t micro_batches, MovesMemo& moves);

}  // namespace orrery::cost
