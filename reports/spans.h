#pragma once
/// What traces and charts ask of a Timeline and the Schedule it belongs to.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::reports {

/// What a span is to the eye: the colours of a chart.
enum class Activity : std::uint8_t { forward, backward, recompute, optimizer, communication, waiting, other };
[[nodiscard]] const char* name_of(Activity activity);
[[nodiscard]] Activity activity_of(const plan::Step& step);

/// True when every span stands on a step of its rank's program: the timeline is one of this schedule. Check timelines
/// that come from files; the other functions here abort on a span that does not belong.
[[nodiscard]] bool belongs(const plan::Timeline& timeline, const plan::Schedule& schedule);
[[nodiscard]] const plan::Step& step_of(const plan::Span& span, const plan::Schedule& schedule);

/// The iteration whose length is nearest to the median over iterations (the lowest of equals); 0 when empty.
[[nodiscard]] int typical_iteration(const plan::Timeline& timeline);
/// Ranks of the timeline, ascending; only the lowest of each class unless `all`.
[[nodiscard]] std::vector<int> ranks_of(const plan::Timeline& timeline, const plan::Schedule& schedule, bool all);
/// Spans of one rank and iteration, by (stream, start, place in the program). On a stream they do not overlap:
/// measured starts that fall before the previous end by clock noise are moved up to it.
[[nodiscard]] std::vector<plan::Span> spans_of(const plan::Timeline& timeline, const plan::Schedule& schedule, int rank,
                                               int iteration);

/// Bytes alive on a rank from `time` (seconds) on, by purpose; births and deaths as the program states them.
struct MemoryPoint {
  double time = 0;
  std::map<plan::Purpose, std::int64_t> bytes;
};
[[nodiscard]] std::vector<MemoryPoint> memory_of(const std::vector<plan::Span>& spans, const plan::Schedule& schedule);

/// The rank that a send or receive of `rank` has at its other end.
[[nodiscard]] int peer_of(int rank, const plan::Step& step, const plan::PlanSpec& spec);

}  // namespace orrery::reports
