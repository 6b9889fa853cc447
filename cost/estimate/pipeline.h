#pragma once
/// How long a pipeline of stages takes, from the times of its passes: a replay of turns and hand-overs only, which is
/// cheap enough for a search and right for uneven stages. Many micro-batches are extrapolated from few: after the
/// pipeline has filled, a period of one turn per stage repeats.
#include <cstdint>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::cost {

/// The host's part of a pass: it issues ahead of the device, but waits for what another stage sends. All zero: it is
/// always ahead.
struct Issue {
  double host = 0;       ///< seconds to issue what follows the received tensor's arrival
  double following = 0;  ///< from there until the device has ended, if it waits for nothing but the host
  double ahead_host = 0, ahead_following = 0;  ///< the same of what runs before the received gradient is read
  double ahead_device = 0;                     ///< seconds of that
};
/// When a pass ends that the device could begin at `start` and run in `seconds`. What it takes has `arrived`; `issued`:
/// how far the host is, which moves on.
[[nodiscard]] double issued_end(const Issue& issue, double start, double seconds, double arrived, double& issued);

struct PipelineTimes {
  std::vector<double> forward, backward;  ///< seconds of one micro-batch's pass, by stage
  std::vector<double> prelude;            ///< of a backward pass, what runs before its received gradient is read
  std::vector<double> hop;                ///< seconds of a transfer between stage s and s + 1; one less than stages
  bool overlaps = false;                  ///< a receive makes progress during the prelude
};

struct PipelineResult {
  std::vector<double> end;       ///< seconds until a stage has finished its last pass and handed it over
  std::vector<double> transfer;  ///< of it, spent in transfers that its compute waited for
  std::vector<double> late_forward = {},
                      late_backward = {};  ///< of it, by which passes were longer for the host; or empty
};

/// A receive begins when the passes before it have ended (the order of steps in plan/schedule/schedule.h); a stage
/// computes on only when what it sent has arrived.
[[nodiscard]] PipelineResult pipeline(const PipelineTimes& times, plan::Order order, std::int64_t micro_batches);

/// Seconds of stages whose messages stand between their passes, by stage and chunk.
struct InterleavedTimes {
  std::vector<std::vector<double>> forward, backward;
  std::vector<std::vector<double>> weights = {};  ///< of the zero-bubble orders, whose `backward` is without it
  std::vector<std::vector<double>> prelude = {};  ///< of theirs: of a backward pass, before its gradient is read
  bool overlaps = true;                           ///< of theirs: else a receive makes progress while its rank waits
  std::vector<std::vector<Issue>> forward_issue = {}, backward_issue = {}, weights_issue = {};  ///< or empty
  std::vector<double> hop =
      {};  ///< of a transfer between stage s and s + 1; the last: between the last stage and the first
};

/// The same for any order of chunks or of split passes (plan::moves_of): of interleaved 1F1B and of the others as they
/// are below. `spec`: order, stages and chunks.
[[nodiscard]] PipelineResult moves_pipeline(const InterleavedTimes& times, const plan::PlanSpec& spec,
                                            std::int64_t micro_batches);

/// The same for interleaved 1F1B: a replay of plan::interleaved, in which a pass waits for what it takes and for what
/// its stage has sent.
[[nodiscard]] PipelineResult interleaved_pipeline(const InterleavedTimes& times, std::int64_t micro_batches);

/// The same for a zero-bubble order (plan::zero_bubble): passes wait for what they take alone; what a stage has sent it
/// frees at its backward pass of the micro-batch (activations) and behind its weights' gradients (gradients).
[[nodiscard]] PipelineResult zero_bubble_pipeline(const InterleavedTimes& times, plan::Order order,
                                                  std::int64_t micro_batches);

}  // namespace orrery::cost
