// A timeline that is accepted reads the same after writing.

#include "plan/schedule/timeline.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(timeline) {
  namespace plan = orrery::plan;
  const auto timeline = plan::parse_timeline(text, "fuzz.json");
  if (!timeline) {
    (void)orrery::base::render(timeline.error(), true);
    return;
  }
  const std::string written = plan::write_timeline(*timeline, {});
  const auto again = plan::parse_timeline(written, "fuzz.json");
  orrery::fuzz::must(again && plan::write_timeline(*again, {}) == written, "a timeline reads the same after writing");
}
