// A log of nccl-tests, text or JSON, is refused, or every size in it has bytes and a time.
#include "cost/network/nccl_tests.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(nccl_tests) {
  const auto read = orrery::cost::parse_nccl_test(text, "fuzz.log");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  for (const orrery::cost::TestedSize& size : read->sizes)
    orrery::fuzz::must(size.bytes >= 0 && size.seconds > 0, "a size has bytes and a time");
  (void)orrery::base::render(read->warnings, true);
}
