// A rank's next pass, stop by stop.
#include "cost/estimate/pass_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/ensure.h"

namespace orrery::cost {

using plan::Move;
using Kind = Move::Kind;

namespace {

/// Before a step's first forward pass: the gathers behind the last update have ended. `behind`: they begin with it.
void wait_for_gathers(RunningRank& me, double time, bool behind) {
  if (!me.updated) return;
  const Ticks now = me.clock.state.device;
  const Ticks updated = *std::exchange(me.updated, std::nullopt), begin = behind ? updated : now;
  me.clock.state.device = std::max(now, begin + ticks(time));
  me.clock.waits.exposed[static_cast<std::size_t>(plan::Stream::data)] += me.clock.state.device - now;
}

/// The steps of a chunk's pass, which the first and the last of its kind may have of their own.
const PassProgram& program_in(const ChunkPrograms& chunk, RunningRank& me, const Move& move) {
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

bool end_of_pass(RunningRank& me, const Move& move) {
  me.step = 0;
  me.stopped = false;
  me.first_of(move) = false;
  if (std::int64_t* left = me.left_of(move)) --*left;
  return true;
}

}  // namespace

PassRunner::PassRunner(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t of_step,
                       RunningPipeline& run, PassEffects& effects, PairMemo& pairs)
    : run_(run),
      memo_(effects),
      pairs_(pairs),
      times_(times),
      of_step_(of_step),
      waits_for_all_(!spec.stages.splits_backward() && !spec.stages.asynchronous()),
      posts_(times.overlaps[static_cast<std::size_t>(plan::Stream::pipeline_recv)]) {}

const PassProgram& PassRunner::program_of(int stage, const Move& move) {
  const StageProgram& of = times_.stages[static_cast<std::size_t>(stage)];
  return program_in(*of.chunks[static_cast<std::size_t>(move.chunk)], run_.rank(stage), move);
}

std::optional<Ticks> PassRunner::freed(int stage, const Move& move) {
  const RunningRank& me = run_.rank(stage);
  if (waits_for_all_) {
    if (!me.sends.empty()) return std::nullopt;
    return me.send_free;
  }
  const std::size_t id = run_.messages.holder(stage, move);
  if (id == kNobody) return 0;
  if (run_.messages[id].end < 0) return std::nullopt;
  return run_.messages[id].end;
}

bool PassRunner::pass(int stage, const Move& move) {
  RunningRank& me = run_.rank(stage);
  if (!me.sends.empty()) run_.settle(stage);
  if (move.kind == Kind::forward && move.micro_batch % of_step_ == 0)
    wait_for_gathers(me, times_.stages[static_cast<std::size_t>(stage)].gather,
                     times_.overlaps[static_cast<std::size_t>(plan::Stream::data)]);
  const PassProgram& program = program_of(stage, move);
  if (!program.parts.empty() && !me.clock.beside_others())
    return by_parts(stage, move, program) && end_of_pass(me, move);
  const bool forward = move.kind == Kind::forward;
  if (me.step == 0) {
    const std::optional<Ticks> free = freed(stage, move);
    const StageMessage* input = run_.messages.input_of(stage, move);
    const bool known = free && (!input || input->end >= 0);
    // A rank whose receives are posted does nothing that others see before its pass ends, unless it shares links.
    if (!known && posts_ && !me.clock.beside_others()) {
      if (free) me.waits_for = run_.messages.number_of(*input);
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
      if (effect.waited != PassEffects::kNone) run_.attend(me, effect.waited);
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

bool PassRunner::pair(int stage, const Move& forward, const Move& backward) {
  RunningRank& me = run_.rank(stage);
  if (!me.sends.empty()) run_.settle(stage);
  const PairProgram& program = pairs_.of(program_of(stage, forward), program_of(stage, backward));
  const Ticks late = me.clock.waits.late;
  const auto comes = [&](const PairProgram::Stop& stop) {
    const Move& move = stop.backward ? backward : forward;
    if (stop.frees) return frees(stage, move);
    const StageMessage* input = run_.messages.input_of(stage, move);
    return !input || arrives(me, *input, run_.messages.sender_to(stage, move));
  };
  Ticks waited = PassEffects::kNone;
  const auto to_the_end = [&] {
    for (; me.stops < program.stops.size(); ++me.stops)
      if (!run_to(me, program.all, program.stops[me.stops].step, waited) || !comes(program.stops[me.stops]))
        return false;
    return run_to(me, program.all, program.all.steps.size(), waited);
  };
  const bool passed = to_the_end();
  me.late_backward += me.clock.waits.late - late;
  if (!passed) return false;
  me.stops = 0;
  return end_of_pass(me, forward) && end_of_pass(me, backward);
}

bool PassRunner::go_on(int stage, const Move& move, const PassProgram& program, Ticks& waited) {
  RunningRank& me = run_.rank(stage);
  const StageMessage* message = run_.messages.input_of(stage, move);
  const std::size_t input = message ? program.input : program.steps.size();
  const auto frees_at = [&](std::size_t stop) { return stop != program.freed || frees(stage, move); };
  const auto arrives_at = [&](std::size_t stop) {
    return !message || stop != input || arrives(me, *message, run_.messages.sender_to(stage, move));
  };
  for (const std::size_t stop : {std::min(program.freed, input), std::max(program.freed, input)}) {
    if (stop < me.step || (stop == me.step && me.stopped)) continue;
    if (!run_to(me, program, stop, waited) || !frees_at(stop) || !arrives_at(stop)) return false;
    me.stopped = true;
  }
  return run_to(me, program, program.steps.size(), waited);
}

bool PassRunner::run_to(RunningRank& me, const PassProgram& program, std::size_t end, Ticks& waited) {
  if (me.step <= program.sent && program.sent < end && me.output == PassEffects::kNone) {
    if (me.step < program.sent && !run_to(me, program, program.sent, waited)) return false;
    const std::optional<Ticks> output = me.made();
    if (!output) return false;
    me.output = *output;
  }
  const std::size_t done = me.clock.run(std::span(program.steps).subspan(me.step, end - me.step));
  me.stopped = me.stopped && done == 0;
  me.step += done;
  if (me.clock.waited >= 0) {
    run_.attend(me, me.clock.waited);
    if (waited == PassEffects::kNone) waited = me.clock.waited;
  }
  return me.step == end;
}

bool PassRunner::by_parts(int stage, const Move& move, const PassProgram& program) {
  RunningRank& me = run_.rank(stage);
  const StageMessage* input = run_.messages.input_of(stage, move);
  for (; me.step < program.parts.size(); ++me.step) {
    const PassPart& part = program.parts[me.step];
    const bool frees_memory = part.begin <= program.freed && program.freed < part.end;
    if (frees_memory && !frees(stage, move)) return false;
    const bool reads = input && part.begin == program.input;
    if (reads && !arrives(me, *input, run_.messages.sender_to(stage, move))) return false;
    if (!me.clock.leap(part)) {
      const Ticks late = me.clock.waits.late;
      me.clock.run(std::span(program.steps).subspan(part.begin, part.end - part.begin));
      (move.kind == Kind::forward ? me.late_forward : me.late_backward) += me.clock.waits.late - late;
    }
    if (!posts_ && me.clock.waited >= 0) run_.attend(me, me.clock.waited);
  }
  return true;
}

bool PassRunner::frees(int stage, const Move& move) {
  RunningRank& me = run_.rank(stage);
  const std::optional<Ticks> free = freed(stage, move);
  if (!free) {
    me.waits_for = waits_for_all_ ? me.sends.back() : run_.messages.holder(stage, move);
    const StageMessage& message = run_.messages[me.waits_for];
    const Ticks wanted = message.wanted < 0 ? run_.rank(message.to).clock.state.device : message.wanted;
    if (std::max(message.sent, wanted) >= me.clock.state.device) run_.attend(me, me.clock.state.device);
    return false;
  }
  // The last part of this wait is the message's way, not a bubble.
  const std::size_t id = waits_for_all_ ? kNobody : run_.messages.holder(stage, move);
  const Ticks hop = waits_for_all_ ? me.send_hop : id == kNobody ? 0 : run_.messages[id].hop;
  me.transfer += std::clamp<Ticks>(*free - std::max(me.clock.state.device, me.clock.state.held), 0, hop);
  me.clock.hold(*free);
  return true;
}

bool PassRunner::arrives(RunningRank& me, const StageMessage& message, int sender) {
  if (message.end < 0) {
    const Ticks sent = message.sent < 0 ? run_.rank(sender).clock.state.device : message.sent;
    if (message.wanted < 0 || sent >= me.clock.state.device) run_.attend(me, me.clock.state.device);
    me.waits_for = run_.messages.number_of(message);
    return false;
  }
  me.clock.arrive(message.end);
  const Ticks ready = std::max(me.clock.state.device, me.clock.state.held);
  me.transfer += std::min(message.end - message.begin, std::max<Ticks>(0, message.end - ready));
  return true;
}

}  // namespace orrery::cost
