// A plan file that is accepted reads the same after writing, and make_plan takes or refuses it without harm.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "plan/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = orrery::plan;
  const auto file = plan::parse_plan_file({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!file) {
    (void)orrery::base::render(file.error(), true);
    return 0;
  }
  const std::string text = plan::write_plan_file(*file);
  const auto again = plan::parse_plan_file(text, "fuzz.yaml");
  if (!again || plan::write_plan_file(*again) != text) std::abort();
  (void)plan::make_plan(std::make_shared<const orrery::models::Model>(file->model),
                        std::make_shared<const orrery::clusters::Cluster>(file->cluster), file->spec);
  return 0;
}
