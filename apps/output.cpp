// The envelope of --json, and text for people.
#include "apps/output.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace orrery::apps {
namespace {

const char* name_of(base::Severity severity) {
  switch (severity) {
    case base::Severity::error: return "error";
    case base::Severity::warning: return "warning";
    case base::Severity::note: return "note";
  }
  return "error";
}

nlohmann::ordered_json json_of(const base::Diagnostic& one) {
  return {{"level", name_of(one.severity)}, {"code", one.code},           {"file", one.where.file},
          {"line", one.where.line},         {"column", one.where.column}, {"message", one.message},
          {"help", one.help}};
}

}  // namespace

std::string envelope(const std::string& command, const Outcome& outcome) {
  nlohmann::ordered_json diagnostics = nlohmann::ordered_json::array();
  for (const base::Diagnostic& one : outcome.diagnostics) diagnostics.push_back(json_of(one));
  const std::string name = nlohmann::ordered_json(command).dump();
  // Input files may hold anything: what is not UTF-8 is replaced rather than refused.
  return "{\"format_version\":\"1.0\",\"command\":" + name +
         ",\"result\":" + (outcome.json.empty() ? "null" : outcome.json) + ",\"diagnostics\":" +
         diagnostics.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "}\n";
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
