// A model that is accepted reads the same after writing, and can be counted without overflow.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "models/counts.h"
#include "models/read.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model = orrery::models::parse_model({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!model) {
    (void)orrery::base::render(model.error(), true);
    return 0;
  }
  const auto again = orrery::models::parse_model(orrery::models::write_model(*model), "fuzz.yaml");
  if (!again || *again != *model) std::abort();
  if (orrery::models::parameters(*model) <= 0) std::abort();
  return 0;
}
