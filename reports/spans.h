#pragma once
/// What traces and charts need from a Timeline and its Schedule.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::reports {

/// How a span is shown: the colours of a chart.
enum class SpanKind : std::uint8_t { forward, backward, recompute, optimizer, communication, waiting, other };
[[nodiscard]] const char* name_of(SpanKind activity);
[[nodiscard]] SpanKind span_kind_of(const plan::Step& step);

/// Whether every span refers to a step of its rank's program, that is, the timeline is one of this schedule. Check
/// timelines from files: the other functions here abort on a span that does not belong.
[[nodiscard]] bool belongs(const plan::Timeline& timeline, const plan::Schedule& schedule);
[[nodiscard]] const plan::Step& step_of(const plan::Span& span, const plan::Schedule& schedule);

/// The iteration whose length is nearest to the median over iterations (the lowest if several are); 0 when empty.
[[nodiscard]] int typical_iteration(const plan::Timeline& timeline);
/// Ranks of the timeline, ascending; only the lowest of each class unless `all`.
[[nodiscard]] std::vector<int> ranks_of(const plan::Timeline& timeline, const plan::Schedule& schedule, bool all);
/// Spans of one rank and iteration, by (stream, start, place in the program). Spans of a stream do not overlap:
/// measured starts that clock noise puts before the previous end are moved up to it.
[[nodiscard]] std::vector<plan::Span> spans_of(const plan::Timeline& timeline, const plan::Schedule& schedule, int rank,
                                               int iteration);

/// Bytes alive on a rank from `time` (seconds) on, by purpose; births and deaths are the program's.
struct MemoryPoint {
  double time = 0;
  std::map<plan::Purpose, std::int64_t> bytes;
};
[[nodiscard]] std::vector<MemoryPoint> memory_of(const std::vector<plan::Span>& spans, const plan::Schedule& schedule);

/// The rank at the other end of a send or receive of `rank`.
[[nodiscard]] int peer_of(int rank, const plan::Step& step, const plan::PlanSpec& spec);

}  // namespace orrery::reports
