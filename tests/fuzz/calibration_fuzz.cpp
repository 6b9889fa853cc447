// A calibration that is accepted reads the same after writing.
#include "cost/parameters/calibration.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(calibration) {
  const auto read = orrery::cost::parse_calibration(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  const std::string written = orrery::cost::write_calibration(*read);
  const auto again = orrery::cost::parse_calibration(written, "fuzz.yaml");
  orrery::fuzz::must(again && *again == *read, "a calibration reads the same after writing");
}
