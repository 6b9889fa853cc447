/// Replays turns.
#include "cost/estimate/pipeline.h"

#include <algorithm>

#include "base/ensure.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

namespace {

/// The progress of one stage through its turns.
struct Stage {
  std::vector<plan::Turn> turns;
  std::size_t next = 0;
  double computed = 0;   ///< end of its last pass
  double busy = 0;       ///< end of what leaves behind it
  double sent = 0;       ///< end of its last send
  bool sending = false;  ///< its last message has not been received yet
  double arrived = -1;   ///< end of the transfer that its next pass waits for; negative: not yet
  double transfer = 0;
  double issued = 0;  ///< time up to which the host has issued
  double late_forward = 0, late_backward = 0;
  std::vector<double> forward_done, backward_done;  ///< by micro-batch; negative: not yet
};

class Replay {
 public:
  Replay(const PipelineTimes& times, plan::Order order, std::int64_t micro_batches) : times_(times) {
    const auto stages = static_cast<int>(times.forward.size());
    for (int s = 0; s < stages; ++s) {
      Stage stage;
      stage.turns = plan::turns(order, s, stages, micro_batches);
      stage.forward_done.assign(static_cast<std::size_t>(micro_batches), -1);
      stage.backward_done = stage.forward_done;
      if (!times.begin.empty()) stage.computed = times.begin[static_cast<std::size_t>(s)];
      stages_.push_back(std::move(stage));
    }
  }

  PipelineResult run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t s = 0; s < stages_.size(); ++s)
        while (advance(s)) moved = true;
    }
    PipelineResult result;
    for (const Stage& stage : stages_) {
      ENSURE(stage.next == stage.turns.size(), "a pipeline stopped at turn {} of {}", stage.next, stage.turns.size());
      result.end.push_back(std::max(stage.busy, stage.sent));
      result.transfer.push_back(stage.transfer);
      result.late_forward.push_back(stage.late_forward);
      result.late_backward.push_back(stage.late_backward);
    }
    return result;
  }

 private:
  /// Runs one turn of stage `s` if all that it waits for is known.
  bool advance(std::size_t s) {
    Stage& stage = stages_[s];
    if (stage.next == stage.turns.size()) return false;
    const plan::Turn turn = stage.turns[stage.next];
    const auto micro_batch = static_cast<std::size_t>(turn.micro_batch);
    const bool receives = turn.forward ? s > 0 : s + 1 < stages_.size();
    const double prelude = turn.forward ? 0 : times_.prelude[s];
    // A host that waits for its send progresses its receive too; otherwise it is busy with the prelude first.
    const bool posted = times_.overlaps || prelude == 0 || stage.sending || stage.sent > stage.computed;
    const double begin = std::max(stage.computed, stage.sent);
    if (receives && stage.arrived < 0) {
      Stage& from = stages_[turn.forward ? s - 1 : s + 1];
      const double ready = (turn.forward ? from.forward_done : from.backward_done)[micro_batch];
      if (ready < 0) return false;
      const double hop = times_.hop[turn.forward ? s - 1 : s];
      stage.arrived = std::max(posted ? stage.computed : begin + prelude, ready) + hop;
      stage.transfer += std::min(hop, std::max(0.0, stage.arrived - stage.computed - prelude));
      from.sent = stage.arrived;
      from.sending = false;
    }
    if (stage.sending) return false;
    const std::vector<double>& aheads = turn.forward ? times_.ahead_forward : times_.ahead_backward;
    const double ahead = aheads.empty() ? 0 : aheads[s];
    const std::vector<double>& tails = turn.forward ? times_.tail_forward : times_.tail_backward;
    const double tail = tails.empty() ? 0 : tails[s];
    const bool last = !turn.forward && !times_.last.empty() && stage.next + 1 == stage.turns.size();
    const double seconds =
        (turn.forward ? times_.forward : times_.backward)[s] - ahead - tail + (last ? times_.last[s] : 0);
    const double start = std::max({stage.computed + ahead, stage.busy, stage.sent, stage.arrived - prelude});
    const std::vector<Issue>& issue = turn.forward ? times_.forward_issue : times_.backward_issue;
    stage.computed =
        issue.empty() ? start + seconds : issued_end(issue[s], start, seconds, stage.arrived, stage.issued);
    (turn.forward ? stage.late_forward : stage.late_backward) += stage.computed - start - seconds;
    stage.arrived = -1;
    stage.busy = stage.computed + tail;
    (turn.forward ? stage.forward_done : stage.backward_done)[micro_batch] = stage.computed;
    stage.sending = turn.forward ? s + 1 < stages_.size() : s > 0;
    ++stage.next;
    return true;
  }

  const PipelineTimes& times_;
  std::vector<Stage> stages_;
};

/// A single stage waits for nobody. Its host has no lead over the device when the step begins; what it gains or loses
/// in the first micro-batches is settled by the last of these, which all others equal.
PipelineResult one_stage(const PipelineTimes& times, std::int64_t micro_batches) {
  constexpr std::int64_t kSettled = 16;
  const double begin = times.begin.empty() ? 0 : times.begin[0];
  const double last = times.last.empty() ? 0 : times.last[0];
  if (times.forward_issue.empty())
    return {{begin + static_cast<double>(micro_batches) * (times.forward[0] + times.backward[0]) + last}, {0}};
  double end = begin, issued = 0, period = 0;
  PipelineResult result{{}, {0}, {0}, {0}};
  for (std::int64_t m = 0; m < std::min(micro_batches, kSettled); ++m) {
    const double before = end;
    // The last of them stands for all further ones.
    const double times_over = m + 1 == kSettled ? static_cast<double>(micro_batches - m) : 1;
    const double forward = issued_end(times.forward_issue[0], before, times.forward[0], -1, issued);
    end = issued_end(times.backward_issue[0], forward, times.backward[0], -1, issued);
    period += times_over * (end - before);
    result.late_forward[0] += times_over * (forward - before - times.forward[0]);
    result.late_backward[0] += times_over * (end - forward - times.backward[0]);
  }
  result.end = {begin + period + last};
  return result;
}

}  // namespace

PipelineResult pipeline(const PipelineTimes& times, plan::Order order, std::int64_t micro_batches) {
  const auto stages = static_cast<std::int64_t>(times.forward.size());
  ENSURE(stages >= 1 && times.hop.size() + 1 == times.forward.size() && times.prelude.size() == times.forward.size(),
         "{} stages with {} hops", stages, times.hop.size());
  if (stages == 1) return one_stage(times, micro_batches);
  const std::int64_t filled = 4 * stages;  // by then each period of `stages` micro-batches equals the next
  if (micro_batches <= filled) return Replay(times, order, micro_batches).run();
  PipelineResult result = Replay(times, order, filled).run();
  const PipelineResult before = Replay(times, order, filled - stages).run();
  const double periods = static_cast<double>(micro_batches - filled) / static_cast<double>(stages);
  for (std::size_t s = 0; s < result.end.size(); ++s) {
    result.end[s] += periods * (result.end[s] - before.end[s]);
    result.transfer[s] += periods * (result.transfer[s] - before.transfer[s]);
    result.late_forward[s] += periods * (result.late_forward[s] - before.late_forward[s]);
    result.late_backward[s] += periods * (result.late_backward[s] - before.late_backward[s]);
  }
  return result;
}

}  // namespace orrery::cost
