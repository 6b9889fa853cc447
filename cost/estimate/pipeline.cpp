// Runs passes, message by message.
#include "cost/estimate/pipeline.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/least_end.h"
#include "cost/estimate/pass_runner.h"
#include "cost/estimate/running_rank.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

namespace {

using plan::Move;
using Kind = Move::Kind;

/// What earlier runs have found out.
struct Memos {
  PassEffects& effects;
  MovesMemo& moves;
  PairMemo& pairs;
};

/// When a run has ended, by rank, and what it waited for.
PipelineResult result_of(std::vector<RunningRank>& ranks, const plan::PlanSpec& spec) {
  PipelineResult result;
  for (RunningRank& rank : ranks) {
    // What a run that does not drain sends to its next step is not received any more.
    ENSURE(rank.next == rank.moves.size() && (rank.sends.empty() || spec.stages.asynchronous()),
           "a pipeline stopped at {} of {}", rank.next, rank.moves.size());
    const Ticks passed = std::max(rank.clock.state.device, rank.send_free);
    const Ticks end = std::max(passed, rank.clock.settle());
    result.end.push_back(seconds(end));
    result.issued.push_back(seconds(rank.clock.state.host));
    result.reduced.push_back(seconds(end - passed));
    result.transfer.push_back(seconds(rank.transfer));
    result.late_forward.push_back(seconds(rank.late_forward));
    result.late_backward.push_back(seconds(rank.late_backward));
    auto& exposed = result.exposed.emplace_back();
    for (std::size_t s = 0; s < exposed.size(); ++s) exposed[s] = seconds(rank.clock.waits.exposed[s]);
  }
  return result;
}

class PipelineRun {
 public:
  /// `micro_batches`: of a training step. `steps`: more than one only of an asynchronous order.
  PipelineRun(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches, Memos memos,
              std::int64_t steps = 1)
      : moves_(memos.moves.of(spec, micro_batches, steps)),
        times_(times),
        spec_(spec),
        beside_(plan::runs_beside(spec)),
        posts_(times.overlaps[static_cast<std::size_t>(plan::Stream::pipeline_recv)]),
        run_{{},
             StageMessages(times, spec, steps * micro_batches + (spec.stages.asynchronous() ? spec.mesh.pipeline : 0))},
        passes_(times, spec, micro_batches, run_, memos.effects, memos.pairs) {
    run_.ranks.reserve(times.stages.size());
    for (const PipelineTimes::Neighbours& some : times.neighbours)
      shared_.push_back(std::make_shared<SharedStreams>(some.rates));
    for (const std::vector<Move>& moves : *moves_) {
      const std::size_t stage = run_.ranks.size();
      RunningRank& rank = run_.ranks.emplace_back(clock_of(stage), moves, spec.stages.virtual_stages);
      const std::vector<PassStep>& begin = times.stages[stage].begin;
      ENSURE(rank.clock.run(begin) == begin.size(), "a step begins with waits");
    }
  }

  PipelineResult run() {
    bool moved = true;
    while (moved) {
      moved = false;
      // Activations travel down the stages, gradients up.
      for (int s = 0; s < spec_.mesh.pipeline; ++s)
        while (advance(s)) moved = true;
      for (int s = spec_.mesh.pipeline; s-- > 0;)
        while (advance(s)) moved = true;
      moved |= std::exchange(run_.settled, false);
      if (!moved) moved = go_on_in_time();
    }
    return result_of(run_.ranks, spec_);
  }

 private:
  [[nodiscard]] RankClock clock_of(std::size_t stage) const {
    const StageProgram& of = times_.stages[stage];
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      const PipelineTimes::Neighbours& some = times_.neighbours[i];
      if (stage >= some.first && stage < some.first + some.count)
        return RankClock(times_.overlaps, reach_of(of.chunks, beside_), shared_[i], {true, stage - some.first});
    }
    return RankClock(times_.overlaps, reach_of(of.chunks, beside_), of.rates);
  }

  bool advance(int stage) {
    RunningRank& me = run_.rank(stage);
    if (me.next == me.moves.size()) {
      if (me.step == 0) me.clock.need_all(), me.step = 1;
      if (spec_.stages.asynchronous())
        run_.attend(me, me.clock.state.device);  // the next step would wait for what is under way
      return run_.settle(stage);
    }
    if (me.clock.stuck()) return run_.settle(stage);
    if (me.waits_for != kNobody) {
      if (!me.sends.empty()) run_.settle(stage);
      if (run_.messages[me.waits_for].end < 0) return false;
      me.waits_for = kNobody;
      me.attends = false;
    }
    const Move& move = me.moves[me.next];
    switch (move.kind) {
      case Kind::send_activation:
      case Kind::send_gradient: {
        const std::size_t id = run_.messages.sent(move.kind == Kind::send_activation, stage, move);
        if (me.output == PassEffects::kNone) {
          const std::optional<Ticks> output = me.made();
          if (!output) return false;
          me.output = *output;
        }
        run_.messages[id].sent = std::exchange(me.output, PassEffects::kNone);
        run_.messages.route(stage, move);
        me.sends.push_back(id);
        break;
      }
      case Kind::receive_activation:
      case Kind::receive_gradient: {
        const std::size_t id = run_.messages.taken(move.kind == Kind::receive_activation, stage, move);
        if (posts_) run_.messages[id].wanted = me.clock.state.device;
        me.receives.push_back(id);
        break;
      }
      case Kind::forward:
      case Kind::backward:
      case Kind::weights:
        if (!(move.beside ? passes_.pair(stage, move, me.moves[me.next + 1]) : passes_.pass(stage, move))) return false;
        me.next += move.beside ? 1 : 0;
        break;
      case Kind::update:
        if (!update(stage)) return false;
        break;
    }
    ++me.next;
    return true;
  }

  /// The end of a training step, for which the ends of a model with a tied table wait for each other.
  bool update(int stage) {
    RunningRank& me = run_.rank(stage);
    if (!me.sends.empty()) run_.settle(stage);
    const std::size_t step = me.updates.size();
    if (me.step == 0) {
      const std::optional<Ticks> reduced = me.clock.finished(plan::Stream::data);
      if (!reduced) return false;
      const Ticks ready = std::max(me.clock.state.device, *reduced);
      me.clock.waits.exposed[static_cast<std::size_t>(plan::Stream::data)] += ready - me.clock.state.device;
      me.clock.state.device = ready;
      me.step = 1;  // ready, and known to be
    }
    const int last = spec_.mesh.pipeline - 1;
    if (times_.tied && (stage == 0 || stage == last)) {
      RunningRank& other = run_.rank(last - stage);
      const bool there = other.updates.size() > step || (other.updates.size() == step && other.step == 1 &&
                                                         other.moves[other.next].kind == Kind::update);
      if (!there) {
        run_.attend(me, me.clock.state.device);
        return false;
      }
      const Ticks met = other.updates.size() > step ? other.updates[step] : other.clock.state.device;
      me.updates.push_back(me.clock.state.device);
      me.clock.state.device = std::max(me.clock.state.device, met);
    } else {
      me.updates.push_back(me.clock.state.device);
    }
    me.step = 0;
    const StageProgram& program = times_.stages[static_cast<std::size_t>(stage)];
    me.clock.state.device += ticks(program.update);
    if (program.gather > 0) me.updated = me.clock.state.device;
    return true;
  }
  /// No rank can go on: of what happens next the first does. A rank that comes first begins to wait, as what it waits
  /// for comes later; messages that share links go on until one has ended that a rank waits for. False: all wait.
  bool go_on_in_time() {
    RunningRank* first = nullptr;
    bool stuck = false;
    for (RunningRank& rank : run_.ranks) {
      stuck |= rank.stuck = rank.clock.stuck();
      const bool waits = rank.waits_for != kNobody || rank.stuck;
      if (!posts_ && waits && !rank.attends && (!first || rank.clock.state.device < first->clock.state.device))
        first = &rank;
    }
    while (stuck) {
      SharedStreams* streams = nullptr;
      Ticks next = first ? first->clock.state.device : SharedStreams::kWhenNeeded;
      for (const std::shared_ptr<SharedStreams>& some : shared_)
        if (const Ticks time = some->next(); time < next) next = time, streams = some.get();
      if (!streams) break;
      streams->go_on();
      bool moved = false;
      for (RunningRank& rank : run_.ranks)
        if (rank.stuck && !rank.clock.stuck()) moved = true, rank.attends = false;
      if (moved) return true;
    }
    if (!first) return false;
    first->attends = true;
    run_.attend(*first, first->clock.state.device);
    return true;
  }

  std::shared_ptr<const StageMoves> moves_;
  const PipelineTimes& times_;
  const plan::PlanSpec& spec_;
  bool beside_;
  bool posts_;  ///< receives move from the moment at which they are posted
  RunningPipeline run_;
  PassRunner passes_;
  std::vector<std::shared_ptr<SharedStreams>> shared_;  ///< by neighbours
};

/// Calls `visit` with each member that grows with the passes of a run.
template <class Visit>
void each_sum(const Visit& visit) {
  for (std::vector<double> PipelineResult::*part :
       {&PipelineResult::end, &PipelineResult::issued, &PipelineResult::transfer, &PipelineResult::late_forward,
        &PipelineResult::late_backward})
    visit(part);
}

/// Between two updates, once the pipeline is full.
PipelineResult steady(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches,
                      const Memos& memos) {
  const std::int64_t in_flight = micro_batches >= spec.mesh.pipeline ? 2 : spec.mesh.pipeline;  // steps
  const std::int64_t filled = 2 * in_flight + 2;
  const PipelineResult few = PipelineRun(times, spec, micro_batches, memos, filled).run();
  PipelineResult out = PipelineRun(times, spec, micro_batches, memos, filled + in_flight).run();
  const auto steps = static_cast<double>(in_flight);
  each_sum([&](std::vector<double> PipelineResult::*part) {
    for (std::size_t s = 0; s < out.end.size(); ++s) (out.*part)[s] = ((out.*part)[s] - (few.*part)[s]) / steps;
  });
  for (std::size_t s = 0; s < out.end.size(); ++s) {
    out.reduced[s] = 0;  // updates wait for it
    for (std::size_t i = 0; i < plan::kStreams; ++i)
      out.exposed[s][i] = (out.exposed[s][i] - few.exposed[s][i]) / steps;
  }
  return out;
}

void extrapolate(PipelineResult& result, const PipelineResult& before, double periods) {
  for (std::size_t s = 0; s < result.end.size(); ++s) {
    each_sum([&](std::vector<double> PipelineResult::*part) {
      (result.*part)[s] += periods * ((result.*part)[s] - (before.*part)[s]);
    });
    for (std::size_t i = 0; i < plan::kStreams; ++i)
      result.exposed[s][i] += periods * (result.exposed[s][i] - before.exposed[s][i]);
  }
}

}  // namespace

PipelineResult pipeline(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches,
                        MovesMemo& moves) {
  const std::int64_t stages = spec.mesh.pipeline;
  ENSURE(times.stages.size() == static_cast<std::size_t>(stages) && times.hop.size() + 1 >= times.stages.size(),
         "{} stages with {} hops", times.stages.size(), times.hop.size());
  PassEffects effects(times.overlaps);
  PairMemo pairs;
  const Memos memos{effects, moves, pairs};
  // A host's lead over one stage's device takes a while to settle.
  constexpr std::int64_t kSettled = 16;
  if (spec.stages.asynchronous()) {
    const std::int64_t enough = 4 * stages;  // of one step: by then each `stages` micro-batches take equally long
    PipelineResult out = steady(times, spec, std::min(micro_batches, enough), memos);
    if (micro_batches > enough)
      extrapolate(out, steady(times, spec, enough - stages, memos),
                  static_cast<double>(micro_batches - enough) / static_cast<double>(stages));
    return out;
  }
  const int periods = spec.stages.splits_backward() ? 6 : spec.stages.virtual_stages > 1 ? 4 : 3;
  const std::int64_t filled = stages == 1 ? kSettled : periods * stages;
  if (micro_batches <= filled || spec.stages.order == plan::Order::custom)
    return PipelineRun(times, spec, micro_batches, memos).run();
  PipelineResult result = PipelineRun(times, spec, filled, memos).run();
  const PipelineResult before = PipelineRun(times, spec, filled - stages, memos).run();
  extrapolate(result, before, static_cast<double>(micro_batches - filled) / static_cast<double>(stages));
  const std::vector<double> least = least_end(times, spec, micro_batches);
  for (std::size_t s = 0; s < least.size(); ++s) result.end[s] = std::max(result.end[s], least[s]);
  return result;
}

}  // namespace orrery::cost
