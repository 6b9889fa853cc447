// A model that is accepted reads the same after writing, and can be counted without overflow.

#include "models/layers/counts.h"
#include "models/read/read.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(model) {
  const auto model = orrery::models::parse_model(text, "fuzz.yaml");
  if (!model) {
    (void)orrery::base::render(model.error(), true);
    return;
  }
  const auto again = orrery::models::parse_model(orrery::models::write_model(*model), "fuzz.yaml");
  orrery::fuzz::must(again && *again == *model, "a model reads the same after writing");
  orrery::fuzz::must(orrery::models::parameters(*model) > 0, "a model has parameters");
}
