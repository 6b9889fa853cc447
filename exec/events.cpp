// Diagnostics to JSON and back.
#include "exec/events.h"

#include <nlohmann/json.hpp>

namespace orrery::exec {
namespace {

const char* name_of(base::Severity severity) {
  switch (severity) {
    case base::Severity::error: return "error";
    case base::Severity::warning: return "warning";
    case base::Severity::note: return "note";
  }
  return "error";
}

}  // namespace

nlohmann::ordered_json diagnostic_event(const base::Diagnostic& d) {
  return {
      {"event", "diagnostic"}, {"severity", name_of(d.severity)}, {"code", d.code},           {"file", d.where.file},
      {"line", d.where.line},  {"column", d.where.column},        {"length", d.where.length}, {"message", d.message},
      {"help", d.help},        {"source_line", d.source_line}};
}

std::optional<base::Diagnostic> diagnostic_of(const nlohmann::json& event) {
  try {
    const auto severity = event.at("severity").get<std::string>();
    base::Diagnostic d;
    d.severity = severity == "warning" ? base::Severity::warning
                 : severity == "note"  ? base::Severity::note
                                       : base::Severity::error;
    event.at("code").get_to(d.code);
    event.at("file").get_to(d.where.file);
    event.at("line").get_to(d.where.line);
    event.at("column").get_to(d.where.column);
    event.at("length").get_to(d.where.length);
    event.at("message").get_to(d.message);
    event.at("help").get_to(d.help);
    event.at("source_line").get_to(d.source_line);
    return d;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string pack_diagnostics(const base::Diagnostics& diagnostics) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const base::Diagnostic& one : diagnostics) all.push_back(diagnostic_event(one));
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

base::Diagnostics unpack_diagnostics(const std::string& text) {
  base::Diagnostics out;
  for (const nlohmann::json& one : nlohmann::json::parse(text))
    if (auto diagnostic = diagnostic_of(one)) out.push_back(std::move(*diagnostic));
  return out;
}

}  // namespace orrery::exec
