// Measured collectives are refused, or every row has bytes and a bandwidth.
#include "cost/network/collective_measurements.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(collectives) {
  const auto read = orrery::cost::parse_measured_collectives(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  for (const orrery::cost::CollectiveSeries& series : *read)
    for (const orrery::cost::MeasuredCollective& row : series.rows)
      orrery::fuzz::must(row.bytes > 0 && row.bus_bandwidth > 0, "a row has bytes and a bandwidth");
}
