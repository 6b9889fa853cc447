#pragma once
/// What a training step needs from outside the schedule.
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "exec/data/clicks.h"
#include "exec/data/masked_data.h"
#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

struct StepInput {
  std::int64_t iteration = 0;
  StepContext context;
  /// The run's number of training steps; passes of later steps are not run. Default: no end.
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  /// Fills one micro-batch of this replica: both spans hold B*T ids, of whole sequences. May already be called for the
  /// next training step, below `end`; if that fails, it is called again in that step.
  std::function<void(const Instance& of, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)> load;
  /// The same for a masked-language model.
  std::function<void(const Instance& of, const MaskedBatch& batch)> load_masked = {};
  /// Samples of a recommendation model: this rank's part of the step.
  std::function<void(const Instance& of, const ClickBatch& batch)> load_clicks = {};
  /// Called with these samples' logits and labels, for evaluation. May be empty.
  std::function<void(std::span<const float> logits, std::span<const float> labels)> see_clicks = {};
  /// Called once on every rank, when its gradients are reduced and none of its parameters has been updated; of a rank
  /// that updates none, behind the clipping. May be empty.
  std::function<void()> before_optimizer;
  /// Called before each step of the program, on the rank's own thread, without waiting for anything. Empty unless a
  /// guard or a test looks at a step: with it, a training step runs without graphs.
  std::function<void(const plan::StepRef& at)> before_each = {};
};

}  // namespace orrery::exec
