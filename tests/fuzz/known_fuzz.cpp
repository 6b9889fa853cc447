// Known hardware (clusters/import/known.yaml) is refused or read; nothing else.
#include "clusters/import/known.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(known) {
  const auto read = orrery::clusters::parse_known(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
  }
}
