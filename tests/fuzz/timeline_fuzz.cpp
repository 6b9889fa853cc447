// A timeline that is accepted reads the same after writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plan/timeline.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = orrery::plan;
  const auto timeline = plan::parse_timeline({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!timeline) {
    (void)orrery::base::render(timeline.error(), true);
    return 0;
  }
  const std::string text = plan::write_timeline(*timeline, {});
  const auto again = plan::parse_timeline(text, "fuzz.json");
  if (!again || plan::write_timeline(*again, {}) != text) std::abort();
  return 0;
}
