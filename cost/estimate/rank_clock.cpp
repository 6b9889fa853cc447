// Runs the steps of a pass over one rank's clocks.
#include "cost/estimate/rank_clock.h"

#include <utility>

#include "base/ensure.h"

namespace orrery::cost {

std::size_t RankClock::run(std::span<const PassStep> steps) {
  waited = -1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PassStep& step = steps[i];
    if (beside_.others && step.kind == PassStep::Kind::compute && !comes()) return i;
    const auto s = static_cast<std::size_t>(step.stream);
    switch (step.kind) {
      case PassStep::Kind::compute: compute(step); break;
      case PassStep::Kind::begin: {
        Count& l = counts_[s];
        if (step.reads_input) after_ = std::max(after_, arrived_);
        state.host += step.host;
        begin(s, step.lane, step.time);
        after_ = 0;
        if (step.frees) l.needed = l.begun, awaited_ |= 1U << s;
        break;
      }
      case PassStep::Kind::after:
        if (shared_)
          behind_.push_back(place(s, counts_[s].begun - step.back));
        else
          after_ = std::max(after_, end_of(s, counts_[s].begun - step.back));
        break;
      case PassStep::Kind::wait:
        counts_[s].needed = std::max(counts_[s].needed, counts_[s].begun + 1 - step.back);
        awaited_ |= 1U << s;
        break;
    }
  }
  if (shared_) return steps.size();  // what begins next may slow down what is awaited
  // Whoever runs next waits for what is awaited.
  for (std::size_t s = 0; awaited_ != 0; ++s, awaited_ >>= 1)
    if (awaited_ & 1U) state.held = std::max(state.held, end_of(s, counts_[s].needed - 1));
  return steps.size();
}

bool RankClock::stuck() {
  if (stuck_ && shared_->end_so_far(*stuck_, state.device)) stuck_.reset();
  return stuck_.has_value();
}

bool RankClock::comes() {
  for (std::size_t s = 0; s < counts_.size(); ++s)
    if (awaited_ >> s & 1U) {
      const SharedStreams::Place last = place(s, counts_[s].needed - 1);
      if (shared_->end_so_far(last, state.device)) continue;
      stuck_ = last;
      return false;
    }
  return true;
}

void RankClock::begin(std::size_t stream, Lane lane, Ticks length) {
  Count& l = counts_[stream];
  if (shared_) {
    const Ticks ready = overlaps_[stream] ? state.device : SharedStreams::kWhenNeeded;
    shared_->begin(place(stream, 0).stream, lane, length, ready, std::exchange(behind_, {}), after_);
    ++l.begun;
    return;
  }
  if (l.begun - l.started == last_[stream].size()) make_room(stream);
  message(stream, l.begun++) = {length, after_};
  if (overlaps_[stream]) start(stream, state.device);
}

/// For twice as many messages.
void RankClock::make_room(std::size_t stream) {
  Ring before = std::move(last_[stream]);
  last_[stream].assign(before.empty() ? room_ : 2 * before.size(), {});
  const std::size_t begun = counts_[stream].begun;
  for (std::size_t i = begun - std::min(begun, before.size()); i < begun; ++i)
    message(stream, i) = before[i & (before.size() - 1)];
}

void RankClock::start(std::size_t stream, Ticks ready) {
  Message& next = message(stream, counts_[stream].started++);
  next.end += std::max({ready, state.free[stream], next.after});
  state.free[stream] = next.end;
}

// Messages that do not move by themselves start when one of them is needed.
Ticks RankClock::end_of(std::size_t stream, std::size_t message) {
  if (shared_) return shared_->end_of(place(stream, message), state.device);
  ENSURE(counts_[stream].begun - message <= last_[stream].size(), "a step reaches further back than its program says");
  while (counts_[stream].started <= message) start(stream, state.device);
  return this->message(stream, message).end;
}

void RankClock::wait(Ticks end) {
  if (end <= state.known) return;
  if (waited < 0) waited = state.device;
  state.known = end;
}

void RankClock::compute(const PassStep& step) {
  Ticks begin = std::max(state.device, state.held);
  const Ticks free = begin;
  wait(state.held);
  std::size_t last = plan::kStreams;
  for (std::size_t s = 0; awaited_ != 0; ++s, awaited_ >>= 1) {
    if (!(awaited_ & 1U)) continue;
    const Ticks end = end_of(s, counts_[s].needed - 1);
    wait(end);
    if (end > begin) begin = end, last = s;
  }
  if (last < plan::kStreams) waits.exposed[last] += begin - free;
  if (step.reads_input && arrived_ >= 0) {
    wait(arrived_);
    begin = std::max(begin, arrived_);
    state.host = std::max(state.host, std::exchange(arrived_, -1));
  }
  state.host += step.host;
  const Ticks length = std::max(step.time, state.host - begin);
  waits.late += length - step.time;
  state.device = begin + length;
}

bool RankClock::leap(const PassPart& part) {
  if (shared_ && (awaited_ != 0 || !shared_->idle(beside_.rank))) return false;
  const Ticks free = std::max(state.device, state.held);
  Ticks begin = free, behind = state.host + part.host_before;
  if (part.reads_input && arrived_ >= 0) {
    begin = std::max(begin, arrived_);
    behind = std::max(behind, arrived_);
  }
  if (state.host - begin > part.slack || behind - begin > part.slack_behind) return false;
  waited = -1;
  wait(state.held);
  if (part.reads_input && arrived_ >= 0) wait(std::exchange(arrived_, -1));
  if (part.known >= 0) {
    if (waited < 0) waited = begin + part.waited;
    state.known = std::max(state.known, begin + part.known);
  }
  state.host = behind + part.host - part.host_before;
  state.device = begin + part.device;
  for (const plan::Stream stream : {plan::Stream::tensor, plan::Stream::context, plan::Stream::exchange})
    waits.exposed[static_cast<std::size_t>(stream)] += part.exposed[static_cast<std::size_t>(stream)];
  return true;
}

bool RankClock::plain() const {
  return !shared_ && awaited_ == 0 && after_ == 0 &&
         std::all_of(counts_.begin(), counts_.end(), [](const Count& l) { return l.started == l.begun; });
}

Ticks RankClock::finish(plan::Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  if (shared_) return counts_[s].begun > 0 ? end_of(s, counts_[s].begun - 1) : 0;
  if (counts_[s].started < counts_[s].begun) end_of(s, counts_[s].begun - 1);
  return state.free[s];
}

std::optional<Ticks> RankClock::finished(plan::Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  if (!beside_.others || counts_[s].begun == 0) return finish(stream);
  const SharedStreams::Place last = place(s, counts_[s].begun - 1);
  const std::optional<Ticks> end = shared_->end_so_far(last, state.device);
  if (!end) stuck_ = last;
  return end;
}

void RankClock::need_all() {
  if (!shared_) return;
  for (std::size_t s = 0; s < counts_.size(); ++s)
    if (counts_[s].begun > 0) static_cast<void>(shared_->end_so_far(place(s, counts_[s].begun - 1), state.device));
}

Ticks RankClock::settle() {
  Ticks end = std::max(state.device, state.held);
  for (std::size_t s = 0; s < counts_.size(); ++s) end = std::max(end, finish(static_cast<plan::Stream>(s)));
  return end;
}

namespace {

constexpr Ticks kAhead = -(Ticks{1} << 60);  // of a host

/// Whether a message that the steps wait for began among them, on a stream that layers wait for within a pass.
bool keeps_to_itself(std::span<const PassStep> steps) {
  std::array<std::size_t, plan::kStreams> begun{};
  for (const PassStep& step : steps) {
    const auto s = static_cast<std::size_t>(step.stream);
    const bool of_layers = step.stream == plan::Stream::tensor || step.stream == plan::Stream::context ||
                           step.stream == plan::Stream::exchange || step.stream == plan::Stream::compute;
    if (!of_layers || step.frees) return false;
    if (step.kind == PassStep::Kind::begin) ++begun[s];
    const bool refers = step.kind == PassStep::Kind::wait || step.kind == PassStep::Kind::after;
    if (refers && step.back > begun[s]) return false;
  }
  return true;
}

/// False: its messages outlast it.
bool summarise(PassPart& part, const PassProgram& pass, const RankClock::Overlaps& overlaps) {
  const std::span<const PassStep> steps = std::span(pass.steps).subspan(part.begin, part.end - part.begin);
  if (!keeps_to_itself(steps)) return false;
  RankClock whole(overlaps, pass.reach);
  whole.state.host = kAhead;
  whole.run(steps);
  if (!whole.plain() || whole.state.held > whole.state.device || whole.settle() > whole.state.device) return false;
  part.device = whole.state.device;
  part.exposed = whole.waits.exposed;
  part.waited = whole.waited;
  part.known = whole.waited < 0 ? -1 : whole.state.known;
  part.slack = part.slack_behind = -kAhead;
  RankClock clock(overlaps, pass.reach);
  clock.state.host = kAhead;
  bool met = false;  // the host has waited for the input
  for (const PassStep& step : steps) {
    part.reads_input = part.reads_input || step.reads_input;
    if (step.kind == PassStep::Kind::compute && step.reads_input && !std::exchange(met, true))
      part.host_before = part.host, part.slack_behind = -kAhead;
    clock.run({&step, 1});
    part.host += step.host;
    if (step.kind != PassStep::Kind::compute) continue;
    part.slack = std::min(part.slack, clock.state.device - part.host);
    part.slack_behind = std::min(part.slack_behind, clock.state.device - part.host + part.host_before);
  }
  return clock.state.device == part.device;
}

}  // namespace

void summarise(PassProgram& pass, const RankClock::Overlaps& overlaps) {
  const auto computes = [](const PassStep& step) { return step.kind == PassStep::Kind::compute; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(pass.steps, computes) - pass.steps.begin());
  if (first == pass.steps.size()) return;
  // Messages ahead of all compute begin when they do, whether it waits for memory or not.
  const std::size_t freed = pass.freed > first ? pass.freed : 0;
  std::size_t begin = 0;
  for (const std::size_t end : {std::min(pass.input, freed), std::max(pass.input, freed), pass.steps.size()}) {
    if (end <= begin) continue;
    PassPart part{begin, end};
    if (!summarise(part, pass, overlaps)) return pass.parts.clear();
    pass.parts.push_back(part);
    begin = end;
  }
}

}  // namespace orrery::cost
