// Intervals that are accepted read the same after writing.
#include "cost/parameters/intervals.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(intervals) {
  const auto read = orrery::cost::parse_intervals(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  const std::string written = orrery::cost::write_intervals(*read);
  const auto again = orrery::cost::parse_intervals(written, "fuzz.yaml");
  orrery::fuzz::must(again && again->spreads == read->spreads && again->grounds == read->grounds &&
                         again->elsewhere == read->elsewhere,
                     "intervals read the same after writing");
}
