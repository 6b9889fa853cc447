#pragma once
/// What passes have done to clocks before. Private to cost/estimate/pipeline.cpp.
#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost/estimate/rank_clock.h"

namespace orrery::cost {

/// What a pass has done to a rank's clock before: a full pipeline goes through the same states over and over.
class PassEffects {
 public:
  static constexpr Ticks kNone = -1;
  struct Effect {
    RankClock::State after;  ///< as of the begin
    RankClock::Waits waits;
    Ticks waited = kNone, transfer = 0;
    Ticks output = kNone;  ///< when what it sends was made, if that was before its end
  };

  explicit PassEffects(const RankClock::Overlaps& overlaps)
      : receives_(overlaps[static_cast<std::size_t>(plan::Stream::pipeline_recv)]) {}

  /// `free`: until when the pass may have to wait for what it has sent; `arrived`: its input, or kNone. `really`: runs
  /// the pass and returns its effect, but `after`.
  template <class Really>
  Effect run(RankClock& clock, const PassProgram& program, Ticks free, Ticks arrived, const Really& really) {
    if (!clock.plain()) return really();
    KnownPasses& known = passes_[&program];
    if (known.effects.empty()) known.host = host_of(program.steps);
    const Ticks origin = clock.state.device;
    const Key key = key_of(clock.state, free, arrived, known.host);
    for (const auto& [before, effect] : known.effects)
      if (before == key) return leap(clock, effect, origin, arrived == kNone ? known.host : kNone);
    Effect effect = really();
    if (!clock.plain()) return effect;
    const Effect result = effect;
    effect.after = clock.state;
    shift(effect.after, -origin);
    for (Ticks* time : {&effect.waited, &effect.output})
      if (*time != kNone) *time -= origin;
    constexpr std::size_t kMost = 8;
    if (known.effects.size() < kMost)
      known.effects.emplace_back(key, effect);
    else
      known.effects[known.next++ % kMost] = {key, effect};
    return result;
  }

 private:
  struct Key {
    RankClock::State state;
    Ticks free = 0, arrived = kNone;
    bool operator==(const Key&) const = default;
  };
  struct KnownPasses {
    Ticks host = 0;  ///< to issue all steps
    std::vector<std::pair<Key, Effect>> effects;
    std::size_t next = 0;
  };

  static Ticks host_of(std::span<const PassStep> steps) {
    Ticks host = 0;
    for (const PassStep& step : steps) host += step.host;
    return host;
  }
  static void shift(RankClock::State& state, Ticks by) {
    for (Ticks* time : {&state.device, &state.host, &state.held, &state.known}) *time += by;
    for (Ticks& free : state.free) free += by;
  }
  /// The parts of a state that matter. A host that is ahead by all that it has to issue may as well be further ahead.
  /// What is over by now is over, unless receives begin when a rank first waits (RankClock::State::known).
  [[nodiscard]] Key key_of(RankClock::State state, Ticks free, Ticks arrived, Ticks host) const {
    const Ticks origin = state.device;
    shift(state, -origin);
    if (arrived == kNone) state.host = std::max(state.host, -host);
    if (receives_) {
      state.known = 0;
      state.held = std::max<Ticks>(0, state.held);
      for (Ticks& of_stream : state.free) of_stream = std::max<Ticks>(0, of_stream);
      free = std::max(origin, free);
      if (arrived != kNone && host == 0) arrived = std::max(origin, arrived);
    }
    // One that lies before the begin is told from none.
    return {state, free - origin, arrived == kNone ? std::numeric_limits<Ticks>::min() : arrived - origin};
  }
  static Effect leap(RankClock& clock, Effect effect, Ticks origin, Ticks host) {
    const Ticks issued = clock.state.host + host;
    clock.state = effect.after;
    shift(clock.state, origin);
    if (host != kNone) clock.state.host = issued;
    clock.waits += effect.waits;
    for (Ticks* time : {&effect.waited, &effect.output})
      if (*time != kNone) *time += origin;
    return effect;
  }

  bool receives_;
  std::unordered_map<const PassProgram*, KnownPasses> passes_;
};

}  // namespace orrery::cost
