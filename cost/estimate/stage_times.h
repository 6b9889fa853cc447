#pragma once
/// Times of a single stage, before stages are combined. Private to cost/estimate/estimate.cpp.
#include <vector>

#include "cost/estimate/pipeline.h"
#include "cost/results.h"

namespace orrery::cost {

/// Seconds of one stage: passes of one micro-batch, and the end of the training step.
struct StageTimes {
  double input = 0, forward = 0, recompute = 0, backward = 0;  ///< compute of one micro-batch
  double tensor = 0;                                           ///< tensor-parallel messages of one micro-batch
  double exchange = 0;                                         ///< all-to-alls of one micro-batch
  double data_forward = 0, data_backward = 0;       ///< data-parallel messages that compute waits for, per micro-batch
  double weights = 0;                               ///< of a split backward: its gradients of the weights
  double copies = 0;                                ///< copies that a micro-batch's passes wait for
  double prelude = 0;                               ///< part of a backward pass before the received gradient is read
  std::vector<double> forward_pass, backward_pass;  ///< sums of the above by pass, for each chunk
  std::vector<double> weights_pass;                 ///< of a split backward; backward_pass then excludes it
  std::vector<double> preludes;                     ///< for each chunk
  /// Parts of the passes in which the rank may also receive, or send (PipelineTimes).
  double ahead_forward = 0, ahead_backward = 0, tail_forward = 0, tail_backward = 0;
  std::vector<double> waits_forward, waits_backward;  ///< of one chunk: what its runs of layers wait for, all layers
  std::vector<double> aheads_forward, aheads_backward, tails_forward, tails_backward;  ///< for each chunk
  std::vector<Issue> forward_issue, backward_issue, weights_issue;  ///< for each chunk, if stages wait for each other
  std::vector<double> within;             ///< for each chunk: compute of reductions within its last backward pass
  double begin = 0;                       ///< zeroing gradients
  double reduce = 0, keep = 0, norm = 0;  ///< messages; copies; squared norms
  double update = 0, gather = 0;          ///< optimizer, and what its gathers add
};

/// Messages at the end of the step that all stages take part in: sums of the gradient norm, of the loss, and of the
/// tied table's two gradients.
struct Agreements {
  double norm = 0, loss = 0, embedding = 0;
};

/// Means over the stages; time in which a stage neither computes nor transfers counts as waiting for another. Tokens
/// are those of the fullest rank, and links are shared with equal groups: only the replay tells what either adds.
[[nodiscard]] Breakdown breakdown_of(const std::vector<StageTimes>& stages, const PipelineResult& passes,
                                     const Agreements& agree, double m, double step_time, double overhead);

}  // namespace orrery::cost
