// Events of rank 0.
#include "exec/run/run_parts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "exec/events.h"

namespace orrery::exec {

double RunParts::tokens() const {
  return static_cast<double>(plan.spec().shape.batch * plan.spec().shape.sequence);
}

void RunParts::report(const nlohmann::ordered_json& event) const {
  if (first_rank() && options.report) options.report(event.dump());
}

void RunParts::warn(const char* code, std::string message, std::string help) const {
  report(diagnostic_event(
      {base::Severity::warning, code, {options.directory.string(), 0, 0, 1}, std::move(message), std::move(help), {}}));
}

}  // namespace orrery::exec
