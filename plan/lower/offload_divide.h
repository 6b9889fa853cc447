#pragma once
/// Divides the optimizer's steps between device and host. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Operators on optimizer states and gradients run on the host's cores if these live there (ZeRO-Offload, Ren et al.
/// 2021): a compute step outside the passes over layers that has such operators becomes several steps, in order, each
/// of the device's or of the host's alone. A copy of a value from the device to there, or its addition to what is
/// there, becomes a copy between the memories. Buffers already have their memories.
void divide_steps(RankClass& rank_class, Block& block);

/// Whether a step belongs to a pass over layers.
[[nodiscard]] inline bool of_layers(const Step& step) {
  return step.phase == Phase::forward || step.phase == Phase::backward || step.phase == Phase::recompute;
}

}  // namespace orrery::plan
