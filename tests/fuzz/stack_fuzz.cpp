// A stack is refused, or every coefficient of it is a number.
#include "cost/parameters/stack.h"

#include <cmath>

#include "tests/fuzz/target.h"

FUZZ_TARGET(stack) {
  const auto read = orrery::cost::parse_stack(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  for (const orrery::cost::Parameter& parameter : read->parameters)
    orrery::fuzz::must(std::isfinite(parameter.value), "a coefficient is a number");
}
