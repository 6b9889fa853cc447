// Clocks that run ahead of nobody.
#include "cost/estimate/rank_clock.h"

#include <utility>

#include "base/ensure.h"

namespace orrery::cost {

void RankClock::run(std::span<const PassStep> steps) {
  waited = -1;
  for (const PassStep& step : steps) {
    const auto s = static_cast<std::size_t>(step.stream);
    switch (step.kind) {
      case PassStep::Kind::compute: compute(step); break;
      case PassStep::Kind::begin: {
        Lane& l = lane(s);
        if (step.reads_input) after_ = std::max(after_, arrived_);
        ENSURE(l.begun - l.started < kMost, "over {} messages wait on stream {}", kMost, s);
        l.after[l.begun % kMost] = after_;
        l.end[l.begun++ % kMost] = step.time;
        state.host += step.host;
        if (overlaps_[s]) start(s, state.device);
        after_ = 0;
        if (step.frees) l.needed = l.begun, awaited_ |= 1U << s;
        break;
      }
      case PassStep::Kind::after: after_ = std::max(after_, end_of(s, lane(s).begun - step.back)); break;
      case PassStep::Kind::wait:
        lane(s).needed = std::max(lane(s).needed, lane(s).begun + 1 - step.back);
        awaited_ |= 1U << s;
        break;
    }
  }
  // Whoever runs next waits for what is awaited.
  for (std::size_t s = 0; awaited_ != 0; ++s, awaited_ >>= 1)
    if (awaited_ & 1U) state.held = std::max(state.held, end_of(s, lane(s).needed - 1));
}

void RankClock::start(std::size_t stream, Ticks ready) {
  Lane& l = lane(stream);
  const std::size_t message = l.started++ % kMost;
  Ticks& end = l.end[message];
  end += std::max({ready, state.free[stream], l.after[message]});
  state.free[stream] = end;
}

// Messages that do not move by themselves start when one of them is needed.
Ticks RankClock::end_of(std::size_t stream, std::size_t message) {
  while (lane(stream).started <= message) start(stream, state.device);
  return lane(stream).end[message % kMost];
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
    const Ticks end = end_of(s, lane(s).needed - 1);
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

bool RankClock::plain() const {
  return awaited_ == 0 && after_ == 0 &&
         std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.started == l.begun; });
}

Ticks RankClock::finish(plan::Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  if (lane(s).started < lane(s).begun) end_of(s, lane(s).begun - 1);
  return state.free[s];
}

Ticks RankClock::settle() {
  Ticks end = std::max(state.device, state.held);
  for (std::size_t s = 0; s < lanes_.size(); ++s) end = std::max(end, finish(static_cast<plan::Stream>(s)));
  return end;
}

}  // namespace orrery::cost
