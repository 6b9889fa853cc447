#pragma once
/// The time that a pipeline of stages takes, from the times of its passes: replays only turns and transfers, which is
/// cheap enough for a search and right for unequal stages. Many micro-batches are extrapolated from few: once the
/// pipeline is full, a period of one turn per stage repeats.
#include <cstdint>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::cost {

/// The host's part of a pass: it issues ahead of the device, but waits for what another stage sends. All zero: the host
/// is always ahead.
struct Issue {
  double host = 0;       ///< seconds to issue what follows the arrival of the received tensor
  double following = 0;  ///< seconds from there until the device ends, if it waits only for the host
  double ahead_host = 0, ahead_following = 0;  ///< the same for what runs before the received gradient is read
  double ahead_device = 0;                     ///< device seconds of that part
};
/// When a pass ends that the device could begin at `start` and that takes `seconds`. `arrived`: when its input arrived.
/// `issued`: the time up to which the host has issued; advanced by this call.
[[nodiscard]] double issued_end(const Issue& issue, double start, double seconds, double arrived, double& issued);

struct PipelineTimes {
  std::vector<double> forward, backward;  ///< seconds of one micro-batch's pass, by stage
  std::vector<double> prelude;            ///< part of a backward pass that runs before its received gradient is read
  std::vector<double> hop;                ///< seconds of a transfer between stages s and s + 1; one fewer than stages
  bool overlaps = false;                  ///< a receive makes progress during the prelude
  /// Seconds at the beginning of a pass in which its first layer's parameters or checkpoint arrive, while the rank also
  /// receives; and at its end, in which its last layer's data leaves, while it also sends. May be empty.
  std::vector<double> ahead_forward = {}, ahead_backward = {}, tail_forward = {}, tail_backward = {};
  std::vector<Issue> forward_issue = {}, backward_issue = {};  ///< may be empty
  std::vector<double> begin = {};                              ///< when a stage may begin; may be empty
  std::vector<double> last = {};  ///< what the last backward pass takes beyond the others; may be empty
};

struct PipelineResult {
  std::vector<double> end;       ///< seconds until a stage has finished its last pass and sent the result
  std::vector<double> transfer;  ///< the part spent waiting for transfers
  std::vector<double> late_forward = {},
                      late_backward = {};  ///< the part by which the host prolongs passes; may be empty
};

/// A receive begins when the passes before it have ended (the order of steps in plan/schedule/schedule.h); a stage
/// continues computing only when the message that it sent has arrived.
[[nodiscard]] PipelineResult pipeline(const PipelineTimes& times, plan::Order order, std::int64_t micro_batches);

/// Times of stages whose messages stand between their passes, in seconds, by stage and chunk.
struct InterleavedTimes {
  std::vector<std::vector<double>> forward, backward;
  std::vector<std::vector<double>> weights = {};  ///< for zero-bubble orders, whose `backward` excludes it
  std::vector<std::vector<double>> prelude = {};  ///< zero-bubble: part of a backward pass before its gradient is read
  bool overlaps = true;                           ///< zero-bubble; false: receives progress only while the rank waits
  std::vector<std::vector<Issue>> forward_issue = {}, backward_issue = {}, weights_issue = {};  ///< may be empty
  /// As PipelineTimes'; may be empty.
  std::vector<std::vector<double>> ahead_forward = {}, ahead_backward = {}, tail_forward = {}, tail_backward = {};
  std::vector<double> hop = {};    ///< transfer between stages s and s + 1; the last: from the last stage to the first
  std::vector<double> begin = {};  ///< as PipelineTimes'; may be empty
  std::vector<std::vector<double>> last = {};  ///< the same of each chunk; of split passes, that of the weights
};

/// The same for any order of chunks or of split passes (plan::moves_of); interleaved 1F1B and the zero-bubble orders as
/// below. `spec`: order, stages and chunks.
[[nodiscard]] PipelineResult moves_pipeline(const InterleavedTimes& times, const plan::PlanSpec& spec,
                                            std::int64_t micro_batches);

/// The same for interleaved 1F1B: replays plan::interleaved, where a pass waits for its input and for the messages that
/// its stage has sent.
[[nodiscard]] PipelineResult interleaved_pipeline(const InterleavedTimes& times, std::int64_t micro_batches);

/// The same for a zero-bubble order (plan::zero_bubble): passes wait only for their input. A stage frees what it sent
/// at the micro-batch's backward pass (activations) and after its weights' gradients (gradients).
[[nodiscard]] PipelineResult zero_bubble_pipeline(const InterleavedTimes& times, plan::Order order,
                                                  std::int64_t micro_batches);

}  // namespace orrery::cost
