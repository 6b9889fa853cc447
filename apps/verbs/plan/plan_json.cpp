// Turns YAML into JSON by walking the plan file's document.
#include "apps/verbs/plan/plan_json.h"

#include <nlohmann/json.hpp>

#include "base/ensure.h"
#include "base/json_tree.h"
#include "base/yaml.h"

namespace orrery::apps {
namespace {

/// A plain scalar as JSON: numbers and booleans as such, everything else (units too) as text.
nlohmann::json scalar(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  const auto number = base::parse_json(text, {}, 1);
  return number && number->is_number() ? *number : nlohmann::json(text);
}

nlohmann::json json_of(const base::Cursor& at) {
  if (at.is_map()) {
    nlohmann::json object = nlohmann::json::object();
    for (const std::string& key : at.keys()) object[key] = json_of(at.at(key));
    return object;
  }
  if (at.is_sequence()) {
    nlohmann::json array = nlohmann::json::array();
    for (const base::Cursor& item : at.items()) array.push_back(json_of(item));
    return array;
  }
  return at.is_scalar() ? scalar(at.text()) : nlohmann::json(nullptr);
}

}  // namespace

nlohmann::json plan_file_json(const plan::PlanFile& file) {
  const base::Document document = base::Document::parse(plan::write_plan_file(file), "plan");
  ENSURE(!document.findings().failed(), "write_plan_file wrote what does not parse");
  nlohmann::json json = json_of(document.root());
  json["format_version"] = document.root().at("format_version").text();  // a version is not a number: 1.10 is not 1.1
  return json;
}

}  // namespace orrery::apps
