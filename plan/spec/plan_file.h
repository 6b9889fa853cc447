#pragma once
/// plan.yaml: model, cluster, job and the chosen plan in full. It needs no other file and works from any folder.
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/yaml.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct PlanFile {
  Job job;
  models::Model model;
  clusters::Cluster cluster;
  PlanSpec spec;
};

[[nodiscard]] std::string write_plan_file(const PlanFile& file);
[[nodiscard]] base::Result<PlanFile> parse_plan_file(std::string_view text, std::string name);
/// The same of a plan that stands within another document, which collects the findings.
[[nodiscard]] PlanFile read_plan_file(const base::Cursor& at);

}  // namespace orrery::plan
