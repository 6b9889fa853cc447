// Runs passes, message by message.
#include "cost/estimate/pipeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/least_end.h"
#include "cost/estimate/pair_program.h"
#include "cost/estimate/pass_effects.h"
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

class PipelineRun {
 public:
  /// `micro_batches`: of a training step. `steps`: more than one only of an asynchronous order.
  PipelineRun(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches, Memos memos,
              std::int64_t steps = 1)
      : memo_(memos.effects),
        pairs_(memos.pairs),
        moves_(memos.moves.of(spec, micro_batches, steps)),
        times_(times),
        spec_(spec),
        splits_(spec.stages.splits_backward()),
        beside_(plan::runs_beside(spec)),
        waits_for_all_(!spec.stages.splits_backward() && !spec.stages.asynchronous()),
        posts_(times.overlaps[static_cast<std::size_t>(plan::Stream::pipeline_recv)]),
        of_step_(micro_batches),
        micro_batches_(steps * micro_batches + (spec.stages.asynchronous() ? spec.mesh.pipeline : 0)),
        messages_(static_cast<std::size_t>(2 * spec.mesh.pipeline * spec.stages.virtual_stages * micro_batches_)) {
    ranks_.reserve(times.stages.size());
    for (const PipelineTimes::Neighbours& some : times.neighbours)
      shared_.push_back(std::make_shared<SharedStreams>(some.rates));
    for (const std::vector<Move>& moves : *moves_) {
      const StageProgram& stage = times.stages[ranks_.size()];
      RunningRank& rank = ranks_.emplace_back(clock_of(ranks_.size()));
      ENSURE(rank.clock.run(stage.begin) == stage.begin.size(), "a step begins with waits");
      rank.first.assign(static_cast<std::size_t>(spec.stages.virtual_stages), {true, true, true});
      rank.backward.assign(static_cast<std::size_t>(spec.stages.virtual_stages), 0);
      rank.weights = rank.backward;
      for (const Move& move : moves)
        if (std::int64_t* left = rank.left_of(move)) ++*left;
      rank.moves = moves;
    }
    for (const double hop : times.hop) hops_.push_back(ticks(hop));
    for (const plan::StageId stage : spec.mesh.stages())
      for (int c = 0; c < spec.stages.virtual_stages; ++c) {
        PlacedChunk& chunk = chunks_.emplace_back();
        chunk.place = spec.place_of(stage, c);
        for (const bool forward : {false, true}) {
          chunk.sends[forward] = spec.sends(stage, c, forward);
          chunk.receives[forward] = spec.receives(stage, c, forward);
        }
      }
    const int last = static_cast<int>(chunks_.size()) - 1;
    for (int place = 0; place <= last; ++place) to_[0].push_back(place > 0 ? spec.stage_at(place - 1).number() : -1);
    for (int place = 0; place <= last; ++place) to_[1].push_back(place < last ? spec.stage_at(place + 1).number() : -1);
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
      moved |= std::exchange(settled_, false);
      if (!moved) moved = go_on_in_time();
    }
    PipelineResult result;
    for (RunningRank& rank : ranks_) {
      // What a run that does not drain sends to its next step is not received any more.
      ENSURE(rank.next == rank.moves.size() && (rank.sends.empty() || spec_.stages.asynchronous()),
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

  [[nodiscard]] const PlacedChunk& chunk_of(int stage, const Move& move) const {
    return chunks_[static_cast<std::size_t>(stage * spec_.stages.virtual_stages + move.chunk)];
  }
  RunningRank& rank(int stage) { return ranks_[static_cast<std::size_t>(stage)]; }

  /// Messages are numbered by direction, virtual stage of the sender and micro-batch.
  std::size_t number(bool forward, int place, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(
        ((forward ? 0 : spec_.mesh.pipeline * spec_.stages.virtual_stages) + place) * micro_batches_ + micro_batch);
  }
  std::size_t sent(bool forward, int stage, const Move& move) const {
    return number(forward, chunk_of(stage, move).place, move.micro_batch);
  }
  /// The message that a pass of this chunk takes: from the previous virtual stage, or, in backward, from the next.
  std::size_t taken(bool forward, int stage, const Move& move) const {
    return number(forward, chunk_of(stage, move).place + (forward ? -1 : 1), move.micro_batch);
  }

  bool advance(int stage) {
    RunningRank& me = rank(stage);
    if (me.next == me.moves.size()) {
      if (me.step == 0) me.clock.need_all(), me.step = 1;
      if (spec_.stages.asynchronous())
        attend(me, me.clock.state.device);  // the next step would wait for what is under way
      return settle(stage);
    }
    if (me.clock.stuck()) return settle(stage);
    if (me.waits_for != kNobody) {
      if (!me.sends.empty()) settle(stage);
      if (messages_[me.waits_for].end < 0) return false;
      me.waits_for = kNobody;
      me.attends = false;
    }
    const Move& move = me.moves[me.next];
    switch (move.kind) {
      case Kind::send_activation:
      case Kind::send_gradient: {
        const std::size_t id = sent(move.kind == Kind::send_activation, stage, move);
        if (me.output == PassEffects::kNone) {
          const std::optional<Ticks> output = me.made();
          if (!output) return false;
          me.output = *output;
        }
        messages_[id].sent = std::exchange(me.output, PassEffects::kNone);
        route(stage, move, messages_[id]);
        me.sends.push_back(id);
        break;
      }
      case Kind::receive_activation:
      case Kind::receive_gradient: {
        const std::size_t id = taken(move.kind == Kind::receive_activation, stage, move);
        if (posts_) messages_[id].wanted = me.clock.state.device;
        me.receives.push_back(id);
        break;
      }
      case Kind::forward:
      case Kind::backward:
      case Kind::weights:
        if (!(move.beside ? pair(stage, move, me.moves[me.next + 1]) : pass(stage, move))) return false;
        me.next += move.beside ? 1 : 0;
        break;
      case Kind::update:
        if (!update(stage)) return false;
        break;
    }
    ++me.next;
    return true;
  }

  /// Where a message goes, and how long it takes.
  void route(int stage, const Move& move, StageMessage& message) const {
    const bool forward = move.kind == Kind::send_activation;
    message.to = to_[forward][static_cast<std::size_t>(chunk_of(stage, move).place)];
    const int hop = splits_ ? std::min(stage, message.to) : forward ? stage : message.to;
    message.hop = hops_[static_cast<std::size_t>(hop)];
  }

  /// The end of a training step, for which the ends of a model with a tied table wait for each other.
  bool update(int stage) {
    RunningRank& me = rank(stage);
    if (!me.sends.empty()) settle(stage);
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
      RunningRank& other = rank(last - stage);
      const bool there = other.updates.size() > step || (other.updates.size() == step && other.step == 1 &&
                                                         other.moves[other.next].kind == Kind::update);
      if (!there) {
        attend(me, me.clock.state.device);
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
  /// Before a step's first forward pass: the gathers behind the last update have ended.
  void gather(RunningRank& me, const Move& move, double seconds) const {
    if (!me.updated || move.kind != Kind::forward || move.micro_batch % of_step_ != 0) return;
    constexpr auto kData = static_cast<std::size_t>(plan::Stream::data);
    const Ticks now = me.clock.state.device;
    const Ticks updated = *std::exchange(me.updated, std::nullopt), begin = times_.overlaps[kData] ? updated : now;
    me.clock.state.device = std::max(now, begin + ticks(seconds));
    me.clock.waits.exposed[kData] += me.clock.state.device - now;
  }

  /// The message whose memory this pass frees or takes; kNobody: none. Where passes are whole and a pipeline drains,
  /// all that has been sent.
  [[nodiscard]] std::size_t holder(int stage, Move move) const {
    if (spec_.stages.asynchronous()) {  // a pass writes what the one before it has sent
      const bool forward = move.kind == Kind::forward;
      if (--move.micro_batch < 0 || !chunk_of(stage, move).sends[forward]) return kNobody;
      return sent(forward, stage, move);
    }
    const bool forward = move.kind == Kind::backward;  // it frees the activations that were sent
    if (move.kind == Kind::forward || !chunk_of(stage, move).sends[forward]) return kNobody;
    return sent(forward, stage, move);
  }
  /// When such messages were received; nothing if not known yet.
  std::optional<Ticks> freed(int stage, const Move& move) {
    const RunningRank& me = rank(stage);
    if (waits_for_all_) {
      if (!me.sends.empty()) return std::nullopt;
      return me.send_free;
    }
    const std::size_t id = holder(stage, move);
    if (id == kNobody) return 0;
    if (messages_[id].end < 0) return std::nullopt;
    return messages_[id].end;
  }

  /// No rank can go on: of what happens next the first does. A rank that comes first begins to wait, as what it waits
  /// for comes later; messages that share links go on until one has ended that a rank waits for. False: all wait.
  bool go_on_in_time() {
    RunningRank* first = nullptr;
    bool stuck = false;
    for (RunningRank& rank : ranks_) {
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
      for (RunningRank& rank : ranks_)
        if (rank.stuck && !rank.clock.stuck()) moved = true, rank.attends = false;
      if (moved) return true;
    }
    if (!first) return false;
    first->attends = true;
    attend(*first, first->clock.state.device);
    return true;
  }
  /// A waiting rank receives all messages that are sent to it.
  void attend(RunningRank& me, Ticks from) {
    for (const std::size_t id : me.receives)
      if (messages_[id].wanted < 0) messages_[id].wanted = from, settled_ = true;
  }

  const PassProgram& program_of(int stage, const Move& move) {
    const ChunkPrograms& chunk =
        *times_.stages[static_cast<std::size_t>(stage)].chunks[static_cast<std::size_t>(move.chunk)];
    RunningRank& me = rank(stage);
    const auto unless_empty = [](const PassProgram& special, const PassProgram& usual) -> const PassProgram& {
      return special.steps.empty() ? usual : special;
    };
    const bool first = me.first_of(move);
    if (move.kind == Kind::forward) return first ? unless_empty(chunk.first, chunk.forward) : chunk.forward;
    const bool weights = move.kind == Kind::weights;
    const PassProgram& usual = weights ? chunk.weights : chunk.backward;
    const PassProgram& one = first ? unless_empty(weights ? chunk.first_weights : chunk.first_backward, usual) : usual;
    return *me.left_of(move) == 1 ? unless_empty(weights ? chunk.last_weights : chunk.last_backward, one) : one;
  }

  bool pass(int stage, const Move& move) {
    RunningRank& me = rank(stage);
    if (!me.sends.empty()) settle(stage);
    gather(me, move, times_.stages[static_cast<std::size_t>(stage)].gather);
    const PassProgram& program = program_of(stage, move);
    if (!program.parts.empty() && !me.clock.beside_others())
      return by_parts(stage, move, program) && end_of_pass(me, move);
    const bool forward = move.kind == Kind::forward;
    if (me.step == 0) {
      const std::optional<Ticks> free = freed(stage, move);
      const StageMessage* input = input_of(stage, move);
      const bool known = free && (!input || input->end >= 0);
      // A rank whose receives are posted does nothing that others see before its pass ends, unless it shares links.
      if (!known && posts_ && !me.clock.beside_others()) {
        if (free) me.waits_for = static_cast<std::size_t>(input - messages_.data());
        return false;
      }
      if (known && !me.clock.beside_others()) {
        const auto really = [&] {
          PassEffects::Effect effect{{}, me.clock.waits};
          const Ticks transfer = me.transfer;
          ENSURE(go_on(stage, move, program, effect.waited), "a pass stops whose messages have come");
          for (std::size_t s = 0; s < plan::kStreams; ++s)
            effect.waits.exposed[s] = me.clock.waits.exposed[s] - effect.waits.exposed[s];
          effect.waits.late = me.clock.waits.late - effect.waits.late;
          effect.transfer = std::exchange(me.transfer, transfer) - transfer;
          effect.output = me.output;
          return effect;
        };
        const PassEffects::Effect effect =
            memo_.run(me.clock, program, *free, input ? input->end : PassEffects::kNone, really);
        if (effect.waited != PassEffects::kNone) attend(me, effect.waited);
        me.transfer += effect.transfer;
        me.output = effect.output;
        (forward ? me.late_forward : me.late_backward) += effect.waits.late;
        return end_of_pass(me, move);
      }
    }
    const Ticks late = me.clock.waits.late;
    Ticks waited = PassEffects::kNone;
    const bool passed = go_on(stage, move, program, waited);
    (forward ? me.late_forward : me.late_backward) += me.clock.waits.late - late;
    return passed && end_of_pass(me, move);
  }
  /// Two passes beside each other, as far as what they wait for is known; false: not to their end.
  bool pair(int stage, const Move& forward, const Move& backward) {
    RunningRank& me = rank(stage);
    if (!me.sends.empty()) settle(stage);
    const PairProgram& program = pairs_.of(program_of(stage, forward), program_of(stage, backward));
    const Ticks late = me.clock.waits.late;
    const auto comes = [&](const PairProgram::Stop& stop) {
      const Move& move = stop.backward ? backward : forward;
      if (stop.frees) return frees(stage, move);
      const StageMessage* input = input_of(stage, move);
      return !input || arrives(me, *input, sender_to(stage, move));
    };
    Ticks waited = PassEffects::kNone;
    const auto to_the_end = [&] {
      for (; me.stops < program.stops.size(); ++me.stops)
        if (!run(me, program.all, program.stops[me.stops].step, waited) || !comes(program.stops[me.stops]))
          return false;
      return run(me, program.all, program.all.steps.size(), waited);
    };
    const bool passed = to_the_end();
    me.late_backward += me.clock.waits.late - late;
    if (!passed) return false;
    me.stops = 0;
    return end_of_pass(me, forward) && end_of_pass(me, backward);
  }
  bool end_of_pass(RunningRank& me, const Move& move) {
    me.step = 0;
    me.stopped = false;
    me.first_of(move) = false;
    if (std::int64_t* left = me.left_of(move)) --*left;
    return true;
  }

  /// As far as what the pass waits for is known; false: not to its end. `waited`: when it first had to wait.
  bool go_on(int stage, const Move& move, const PassProgram& program, Ticks& waited) {
    RunningRank& me = rank(stage);
    const StageMessage* message = input_of(stage, move);
    const std::size_t input = message ? program.input : program.steps.size();
    const auto frees_at = [&](std::size_t stop) { return stop != program.freed || frees(stage, move); };
    const auto arrives_at = [&](std::size_t stop) {
      return !message || stop != input || arrives(me, *message, sender_to(stage, move));
    };
    for (const std::size_t stop : {std::min(program.freed, input), std::max(program.freed, input)}) {
      if (stop < me.step || (stop == me.step && me.stopped)) continue;
      if (!run(me, program, stop, waited) || !frees_at(stop) || !arrives_at(stop)) return false;
      me.stopped = true;
    }
    return run(me, program, program.steps.size(), waited);
  }
  /// False: its messages have not come as far.
  bool run(RunningRank& me, const PassProgram& program, std::size_t end, Ticks& waited) {
    if (me.step <= program.sent && program.sent < end && me.output == PassEffects::kNone) {
      if (me.step < program.sent && !run(me, program, program.sent, waited)) return false;
      const std::optional<Ticks> output = me.made();
      if (!output) return false;
      me.output = *output;
    }
    const std::size_t done = me.clock.run(std::span(program.steps).subspan(me.step, end - me.step));
    me.stopped = me.stopped && done == 0;
    me.step += done;
    if (me.clock.waited >= 0) {
      attend(me, me.clock.waited);
      if (waited == PassEffects::kNone) waited = me.clock.waited;
    }
    return me.step == end;
  }

  /// The same for a pass whose parts can be taken at once, as far as the host is ahead.
  bool by_parts(int stage, const Move& move, const PassProgram& program) {
    RunningRank& me = rank(stage);
    const StageMessage* input = input_of(stage, move);
    for (; me.step < program.parts.size(); ++me.step) {
      const PassPart& part = program.parts[me.step];
      const bool frees_memory = part.begin <= program.freed && program.freed < part.end;
      if (frees_memory && !frees(stage, move)) return false;
      if (input && part.begin == program.input && !arrives(me, *input, sender_to(stage, move))) return false;
      if (!me.clock.leap(part)) {
        const Ticks late = me.clock.waits.late;
        me.clock.run(std::span(program.steps).subspan(part.begin, part.end - part.begin));
        (move.kind == Kind::forward ? me.late_forward : me.late_backward) += me.clock.waits.late - late;
      }
      if (!posts_ && me.clock.waited >= 0) attend(me, me.clock.waited);
    }
    return true;
  }

  bool frees(int stage, const Move& move) {
    RunningRank& me = rank(stage);
    const std::optional<Ticks> free = freed(stage, move);
    if (!free) {
      me.waits_for = waits_for_all_ ? me.sends.back() : holder(stage, move);
      const StageMessage& message = messages_[me.waits_for];
      const Ticks wanted = message.wanted < 0 ? rank(message.to).clock.state.device : message.wanted;
      if (std::max(message.sent, wanted) >= me.clock.state.device) attend(me, me.clock.state.device);
      return false;
    }
    // The last part of this wait is the message's way, not a bubble.
    const std::size_t id = waits_for_all_ ? kNobody : holder(stage, move);
    const Ticks hop = waits_for_all_ ? me.send_hop : id == kNobody ? 0 : messages_[id].hop;
    me.transfer += std::clamp<Ticks>(*free - std::max(me.clock.state.device, me.clock.state.held), 0, hop);
    me.clock.hold(*free);
    return true;
  }
  /// The stage whose message a pass reads.
  int sender_to(int stage, const Move& move) const {
    return to_[move.kind != Kind::forward][static_cast<std::size_t>(chunk_of(stage, move).place)];
  }
  /// The message that a pass reads; null: none.
  const StageMessage* input_of(int stage, const Move& move) {
    const bool forward = move.kind == Kind::forward;
    if (move.kind == Kind::weights || !chunk_of(stage, move).receives[forward]) return nullptr;
    return &messages_[taken(forward, stage, move)];
  }
  /// What is not known yet may have come long ago: the rank waits for certain only for what cannot.
  bool arrives(RunningRank& me, const StageMessage& message, int sender) {
    if (message.end < 0) {
      const Ticks sent = message.sent < 0 ? rank(sender).clock.state.device : message.sent;
      if (message.wanted < 0 || sent >= me.clock.state.device) attend(me, me.clock.state.device);
      me.waits_for = static_cast<std::size_t>(&message - messages_.data());
      return false;
    }
    me.clock.arrive(message.end);
    const Ticks ready = std::max(me.clock.state.device, me.clock.state.held);
    me.transfer += std::min(message.end - message.begin, std::max<Ticks>(0, message.end - ready));
    return true;
  }

  /// Completes the transfers of this stage's next sends if their receivers are ready.
  bool settle(int stage) {
    RunningRank& me = rank(stage);
    bool moved = false;
    while (!me.sends.empty()) {
      const std::size_t id = me.sends.front();
      StageMessage& message = messages_[id];
      RunningRank& other = rank(message.to);
      if (other.receives.empty() || other.receives.front() != id || message.wanted < 0) break;
      message.begin = std::max({message.sent, message.wanted, me.send_free, other.receive_free});
      message.end = message.begin + message.hop;
      me.send_free = other.receive_free = message.end;
      me.send_hop = message.hop;
      me.sends.pop_front();
      other.receives.pop_front();
      moved = settled_ = true;
    }
    return moved;
  }

  PassEffects& memo_;
  PairMemo& pairs_;
  std::shared_ptr<const StageMoves> moves_;
  const PipelineTimes& times_;
  const plan::PlanSpec& spec_;
  bool splits_, beside_;
  bool waits_for_all_;    ///< before a pass, until all that has been sent has arrived
  bool posts_;            ///< receives move from the moment at which they are posted
  std::int64_t of_step_;  ///< micro-batches of a training step
  std::int64_t micro_batches_;
  std::vector<StageMessage> messages_;
  std::vector<Ticks> hops_;
  std::vector<PlacedChunk> chunks_;          ///< by stage
  std::array<std::vector<int>, 2> to_ = {};  ///< by direction and place: the stage that takes its message; -1: none
  std::vector<RunningRank> ranks_;
  std::vector<std::shared_ptr<SharedStreams>> shared_;  ///< by neighbours
  bool settled_ = false;                                ///< a transfer has completed since the last round
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
