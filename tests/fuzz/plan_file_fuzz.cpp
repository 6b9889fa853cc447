// A plan file that is accepted reads the same after writing, and make_plan takes or refuses it without harm.
#include <memory>

#include "plan/spec/plan_file.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(plan_file) {
  namespace plan = orrery::plan;
  const auto file = plan::parse_plan_file(text, "fuzz.yaml");
  if (!file) {
    (void)orrery::base::render(file.error(), true);
    return;
  }
  const std::string written = plan::write_plan_file(*file);
  const auto again = plan::parse_plan_file(written, "fuzz.yaml");
  orrery::fuzz::must(again && plan::write_plan_file(*again) == written, "a plan file reads the same after writing");
  (void)plan::make_plan(std::make_shared<const orrery::models::Model>(file->model),
                        std::make_shared<const orrery::clusters::Cluster>(file->cluster), file->spec);
}
