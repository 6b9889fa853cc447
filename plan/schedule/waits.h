#pragma once
/// The rules of plan/schedule/schedule.h, each written once: which entries of a program run, what a step uses, what may
/// not happen at once, who waits for whom. Those who walk a schedule (plan/schedule/walk.h) and the executor
/// (exec/engine/communication.h) call them. They differ in what they take for memory: instances of buffers, or ranges
/// of addresses, where two buffers may share a place.
///
/// A use of memory is any type with a member `writes` and a function `overlap(a, b)`.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Whether an entry runs in training step `step` of a run that ends before step `end`. `opens`: this is the run's first
/// step, new or resumed.
[[nodiscard]] inline bool runs(const Entry& entry, std::int64_t step, std::int64_t end, bool opens) {
  return (opens || !entry.opening) && step + entry.ahead < end;
}

/// Whether `holds(buffer, writes)` for any use of memory by a step. Birth counts as writing, because the memory's
/// earlier users must have left it. So does a compute step's death. Memory that a message frees is handed out when the
/// message is queued, which is why every compute step waits for its end (rule 3).
template <class Holds>
[[nodiscard]] bool any_use(const Step& step, const Holds& holds) {
  const auto any = [&](const std::vector<BufferId>& buffers, bool writes) {
    return std::any_of(buffers.begin(), buffers.end(), [&](BufferId buffer) { return holds(buffer, writes); });
  };
  return any(step.reads, false) || any(step.writes, true) || any(step.births, true) ||
         (step.kind == StepKind::compute && any(step.deaths, true));
}
/// The uses of a step, each as `made(buffer, writes)`.
template <class Make>
[[nodiscard]] auto uses_of(const Step& step, const Make& made) {
  std::vector<decltype(made(BufferId(), false))> out;
  (void)any_use(step, [&](BufferId buffer, bool writes) {
    out.push_back(made(buffer, writes));
    return false;
  });
  return out;
}

/// Whether two uses of memory may not happen at the same time.
template <class Use>
[[nodiscard]] bool conflict(const Use& a, const Use& b) {
  return (a.writes || b.writes) && overlap(a, b);
}

/// What a step uses, by instances of buffers.
struct BufferUses {
  const RankClass* rank_class = nullptr;
  const Step* step = nullptr;
  std::int32_t micro_batch = -1;
};
struct BufferUse {
  const BufferUses* of = nullptr;
  BufferId buffer;
  bool writes = false;
};
[[nodiscard]] inline bool overlap(const BufferUse& a, const BufferUse& b) {
  return a.buffer == b.buffer &&
         (a.of->micro_batch == b.of->micro_batch || !a.of->rank_class->buffers[a.buffer].per_micro_batch);
}

template <class Holds>
[[nodiscard]] bool any_of(const BufferUses& uses, const Holds& holds) {
  return any_use(*uses.step, [&](BufferId buffer, bool writes) { return holds(BufferUse{&uses, buffer, writes}); });
}
template <class Use, class Holds>
[[nodiscard]] bool any_of(const std::vector<Use>& uses, const Holds& holds) {
  return std::any_of(uses.begin(), uses.end(), holds);
}

/// Whether two steps may not run at the same time.
template <class Uses>
[[nodiscard]] bool conflict_between(const Uses& some, const Uses& others) {
  return any_of(some, [&](const auto& a) { return any_of(others, [&](const auto& b) { return conflict(a, b); }); });
}

/// Rule 2: whether a message waits for an earlier one.
template <class Uses>
[[nodiscard]] bool message_waits(const Uses& later, const Uses& earlier) {
  return conflict_between(later, earlier);
}

/// Rule 3: whether a compute step waits for a message before it; `frees`: it lists deaths.
template <class Uses>
[[nodiscard]] bool compute_waits(const Uses& compute, const Uses& message, bool frees) {
  return frees || conflict_between(message, compute);
}

}  // namespace orrery::plan
