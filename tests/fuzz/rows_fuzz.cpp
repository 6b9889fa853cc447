// Published rows, as YAML or as a table, are refused, or every time in them is positive.
#include "sim/validate/rows.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(rows) {
  for (const char* name : {"fuzz.yaml", "fuzz.csv"}) {
    const auto read = orrery::sim::parse_rows(text, name, orrery::sim::Origin::own);
    if (!read) {
      orrery::fuzz::must(!read.error().empty(), "a refusal says why");
      (void)orrery::base::render(read.error(), true);
      continue;
    }
    for (const orrery::sim::Row& row : *read) {
      (void)orrery::sim::unscorable(row.setup);
      orrery::fuzz::must(!row.measured.seconds || *row.measured.seconds > 0, "a time is positive");
    }
  }
}
