// What the strict JSON reader accepts, another reader accepts as well, and it ends on everything.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(json) {
  orrery::base::JsonReader in(text, "fuzz.json");
  in.skip();
  in.finish();
  (void)orrery::base::render(in.errors(), true);
  orrery::fuzz::must(in.failed() || nlohmann::json::accept(text), "another reader accepts it as well");
}
