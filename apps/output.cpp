// The envelope of --json, and text for people.
#include "apps/output.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "reports/json.h"

namespace orrery::apps {
std::string envelope(const std::string& command, const Outcome& outcome) {
  nlohmann::json result;
  if (!outcome.json.empty()) result = nlohmann::json::parse(outcome.json);
  const nlohmann::json whole = reports::envelope(command, std::move(result), outcome.diagnostics);
  // Input files may hold anything: what is not UTF-8 is replaced rather than refused.
  return whole.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void print(const std::string& command, const Outcome& outcome, bool json, const Terminal& terminal) {
  if (json) {
    const std::string text = envelope(command, outcome);
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    std::fwrite(outcome.text.data(), 1, outcome.text.size(), stdout);
    std::fflush(stdout);
    if (!outcome.diagnostics.empty()) {
      const std::string text = base::render(outcome.diagnostics, terminal.colour_errors);
      std::fwrite(text.data(), 1, text.size(), stderr);
      if (text.empty() || text.back() != '\n') std::fputc('\n', stderr);
    }
  }
  std::fflush(stdout);
}

}  // namespace orrery::apps
