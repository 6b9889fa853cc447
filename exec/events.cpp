// Diagnostics to JSON and back.
#include "exec/events.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_tree.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kMostColumns = std::numeric_limits<int>::max();

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

nlohmann::json event_of_line(const std::string& line) {
  nlohmann::json event = base::parse_json_line(line);
  const auto what = event.is_object() ? event.find("event") : event.end();
  return what != event.end() && what->is_string() ? event : nlohmann::json(nullptr);
}

std::optional<base::Diagnostic> diagnostic_of(const nlohmann::json& event) {
  const auto text = [&](const char* key, std::string& into) {
    const auto found = event.find(key);
    if (found == event.end() || !found->is_string()) return false;
    into = found->get<std::string>();
    return true;
  };
  const auto number = [&](const char* key, int& into) {
    const auto found = event.find(key);
    const auto value = found == event.end() ? std::nullopt : base::whole_number(*found, 0, kMostColumns);
    if (value) into = static_cast<int>(*value);
    return value.has_value();
  };
  if (!event.is_object()) return std::nullopt;
  base::Diagnostic d;
  std::string severity;
  const bool whole = text("severity", severity) && text("code", d.code) && text("file", d.where.file) &&
                     number("line", d.where.line) && number("column", d.where.column) &&
                     number("length", d.where.length) && text("message", d.message) && text("help", d.help) &&
                     text("source_line", d.source_line);
  if (!whole) return std::nullopt;
  if (severity == "warning") d.severity = base::Severity::warning;
  if (severity == "note") d.severity = base::Severity::note;
  return d;
}

std::string pack_diagnostics(const base::Diagnostics& diagnostics) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const base::Diagnostic& one : diagnostics) all.push_back(diagnostic_event(one));
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

base::Diagnostics unpack_diagnostics(const std::string& text) {
  base::Diagnostics out;
  const auto all = base::parse_json(text, "");
  if (!all) return out;
  for (const nlohmann::json& one : *all)
    if (auto diagnostic = diagnostic_of(one)) out.push_back(std::move(*diagnostic));
  return out;
}

nlohmann::ordered_json evaluation_event(std::int64_t step, double loss, std::optional<double> auc) {
  nlohmann::ordered_json out = {{"event", "evaluation"}, {"step", step}, {"loss", loss}};
  if (auc) out["auc"] = *auc;
  return out;
}

}  // namespace orrery::exec
