/// Fills the templates of charts.
#include "reports/html/chart_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ensure.h"
#include "reports/html/chart.h"

namespace orrery::reports::html {
namespace {

json parsed_file(const std::string& name) {
  const auto& files = chart_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const ChartFile& one) { return one.name == name; });
  ENSURE(file != files.end(), "reports/html/charts has no {}", name);
  return json::parse(file->text);
}

/// Replaces the samples, which stand under `key` in entries of `list`, by what is given for each entry's name.
void fill(json& list, const char* key, const json& given, std::string_view chart) {
  for (json& entry : list) {
    if (!entry.contains(key)) continue;
    const auto name = entry.at("name").get<std::string>();
    ENSURE(given.contains(name), "chart {}: {} keeps its sample", chart, name);
    entry[key] = given.at(name);
  }
  for (const auto& [name, value] : given.items())
    ENSURE(std::any_of(
               list.begin(), list.end(),
               [&, &wanted = name](const json& entry) { return entry.at("name") == wanted && entry.contains(key); }),
           "chart {}: no {} is called {}", chart, key, name);
}

}  // namespace

std::string chart_spec(std::string_view name, const json& data, const json& signals) {
  json spec = parsed_file(std::string(name) + ".vg.json");
  spec.erase("$schema");  // for editors; a page names no address
  fill(spec.at("data"), "values", data, name);
  fill(spec.at("signals"), "value", signals, name);
  spec["config"] = parsed_file("config.json");
  return text_of_spec(std::move(spec));
}

}  // namespace orrery::reports::html
