#pragma once
/// Times of a single stage, before stages are combined. Private to cost/estimate/estimate.cpp.
#include <array>
#include <memory>
#include <vector>

#include "cost/estimate/lowered_end.h"
#include "cost/estimate/pipeline.h"
#include "cost/estimate/update.h"
#include "cost/results.h"

namespace orrery::cost {

/// Seconds of one stage: passes of one micro-batch, and the end of the training step.
struct StageTimes {
  double input = 0, forward = 0, recompute = 0, backward = 0;  ///< compute of one micro-batch, on all chunks
  StageProgram program;                                        ///< its passes
  /// For parameter servers: a pass by itself. `exposed`: waits of both passes for messages, by stream.
  double forward_pass = 0, backward_pass = 0;
  std::array<double, plan::kStreams> exposed = {};
  double writing = 0;                     ///< by which the first backward passes take longer than others
  double within = 0;                      ///< compute of reductions within the last backward passes
  double begin = 0;                       ///< zeroing gradients
  double reduce = 0, keep = 0, norm = 0;  ///< messages after the passes; copies; squared norms
  /// Reductions that run beside each other end no earlier than this after the host has issued the passes.
  double reduce_issued = 0;
  /// Once all stages have agreed on the norm, beside the updates: an optimizer's rounds over whole tensors, and the
  /// sums of experts' choices.
  double rounds = 0;
  double update = 0, gather = 0;          ///< optimizer, and what its gathers add
  double copies = 0;                      ///< of keep, norm and update: waits for copies
  std::shared_ptr<const EndProgram> end;  ///< null unless states or parameters live outside the device
  NextGathers next;                       ///< gathers that run beside the next step instead
};

/// Messages at the end of the step that all stages take part in: sums of the gradient norm, of the loss, and of the
/// tied table's two gradients.
struct Agreements {
  double norm = 0, loss = 0, embedding = 0;
};

/// Means over the stages; time in which a stage neither computes nor transfers counts as waiting for another stage.
/// Tokens are those of the fullest rank, and links are shared with equal groups; only the replay separates what either
/// adds.
[[nodiscard]] Breakdown breakdown_of(const std::vector<StageTimes>& stages, const PipelineResult& passes,
                                     const Agreements& agree, double m, double step_time, double overhead);

}  // namespace orrery::cost
