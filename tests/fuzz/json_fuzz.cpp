// What the strict JSON reader accepts, another reader accepts as well, and it ends on everything.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  orrery::base::JsonReader in(text, "fuzz.json");
  in.skip();
  in.finish();
  (void)orrery::base::render(in.errors(), true);
  if (!in.failed() && !nlohmann::json::accept(text)) std::abort();
  return 0;
}
