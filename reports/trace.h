#pragma once
/// A timeline as Chrome trace JSON (chrome://tracing, ui.perfetto.dev): a process per rank, a thread per stream, arrows
/// from sends to receives, and memory as counters. Times are microseconds with nanosecond digits; events of one thread
/// never overlap; the same input gives the same bytes.
#include <optional>
#include <string>

#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::reports {

struct TraceOptions {
  bool all_ranks = false;             ///< false: only the lowest rank of each class in the timeline
  std::optional<int> iteration = {};  ///< none: the typical one (spans.h)
  bool memory = true;                 ///< counters of bytes alive by purpose
};

/// The timeline must belong to the schedule (spans.h).
[[nodiscard]] std::string trace_json(const plan::Timeline& timeline, const plan::Schedule& schedule,
                                     const TraceOptions& options = {});

}  // namespace orrery::reports
