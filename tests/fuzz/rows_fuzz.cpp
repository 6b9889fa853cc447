// Published rows are refused, or every time in them is positive.
#include "sim/validate/rows.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(rows) {
  const auto read = orrery::sim::parse_rows(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  for (const orrery::sim::Row& row : *read) {
    (void)orrery::sim::unscorable(row.setup);
    orrery::fuzz::must(!row.measured.seconds || *row.measured.seconds > 0, "a time is positive");
  }
}
