#pragma once
/// The optimizer in a job file: each kind has keys of its own. Private to plan/.
#include <string>
#include <utility>
#include <vector>

#include "base/yaml.h"
#include "plan/spec/job.h"

namespace orrery::plan {

[[nodiscard]] Optimizer read_optimizer(const base::Cursor& at);
/// Keys and values of the optimizer's kind, in the order in which they are written.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> optimizer_lines(const Optimizer& optimizer);

}  // namespace orrery::plan
