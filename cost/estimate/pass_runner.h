#pragma once
/// Runs the passes of a pipeline's ranks as far as is known what they wait for. Private to cost/estimate/pipeline.cpp.
#include <cstdint>
#include <optional>

#include "cost/estimate/pair_program.h"
#include "cost/estimate/pass_effects.h"
#include "cost/estimate/pipeline.h"
#include "cost/estimate/running_rank.h"

namespace orrery::cost {

class PassRunner {
 public:
  /// Keeps references to all of them. `of_step`: micro-batches of a training step.
  PassRunner(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t of_step, RunningPipeline& run,
             PassEffects& effects, PairMemo& pairs);

  /// The rank's next pass; false: not to its end.
  bool pass(int stage, const plan::Move& move);
  /// Its next two passes beside each other; false: not to their end.
  bool pair(int stage, const plan::Move& forward, const plan::Move& backward);

 private:
  [[nodiscard]] const PassProgram& program_of(int stage, const plan::Move& move);
  /// When the messages whose memory a pass frees or takes were received; nothing if not known yet. Where passes are
  /// whole and a pipeline drains, these are all that have been sent.
  [[nodiscard]] std::optional<Ticks> freed(int stage, const plan::Move& move);
  /// As far as what the pass waits for is known; false: not to its end. `waited`: when it first had to wait.
  bool go_on(int stage, const plan::Move& move, const PassProgram& program, Ticks& waited);
  /// To step `end`; false: its messages have not come as far.
  bool run_to(RunningRank& me, const PassProgram& program, std::size_t end, Ticks& waited);
  /// The same for a pass whose parts can be taken at once, as far as the host is ahead.
  bool by_parts(int stage, const plan::Move& move, const PassProgram& program);
  /// Waits for that memory; false: not known yet when it comes.
  bool frees(int stage, const plan::Move& move);
  /// Waits for the pass's input. What is not known yet may have come long ago: the rank waits for certain only for what
  /// cannot.
  bool arrives(RunningRank& me, const StageMessage& message, int sender);

  RunningPipeline& run_;
  PassEffects& memo_;
  PairMemo& pairs_;
  const PipelineTimes& times_;
  std::int64_t of_step_;
  bool waits_for_all_;  ///< before a pass, until all that has been sent has arrived
  bool posts_;          ///< receives move from the moment at which they are posted
};

}  // namespace orrery::cost
