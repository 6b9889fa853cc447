// TOML by toml++, which knows the place of each value and bounds the depth.
#include <fmt/core.h>

#include "plan/frameworks/flatten.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace orrery::plan {
namespace {

constexpr std::size_t kMostTomlValues = 20'000;

base::Location toml_place(const toml::source_region& region, const std::string& file) {
  return {file, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column), 1};
}

std::string toml_text(const toml::node& node) {
  if (const auto* const text = node.as_string()) return text->get();
  if (const auto* const number = node.as_integer()) return std::to_string(number->get());
  if (const auto* const number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* const truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* const list = node.as_array()) {
    std::string out;
    for (const toml::node& one : *list) out += (out.empty() ? "" : " ") + toml_text(one);
    return out;
  }
  return {};
}

void flatten_toml(const toml::table& table, const std::string& path, const std::string& file, std::vector<Given>& out) {
  for (const auto& [key, node] : table) {
    if (out.size() > kMostTomlValues) return;
    const std::string name = path.empty() ? std::string(key.str()) : fmt::format("{}.{}", path, key.str());
    if (const toml::table* const inner = node.as_table()) {
      flatten_toml(*inner, name, file, out);
      continue;
    }
    Given one{name, toml_place(key.source(), file), {}};
    if (const toml::array* const list = node.as_array()) {
      for (const toml::node& item : *list) one.values.push_back({toml_text(item), toml_place(item.source(), file)});
    } else {
      one.values.push_back({toml_text(node), toml_place(node.source(), file)});
    }
    out.push_back(std::move(one));
  }
}

}  // namespace

base::Result<std::vector<Given>> toml_settings(std::string_view text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return base::fail({{base::Severity::error,
                        "E0651",
                        toml_place(parsed.error().source(), file),
                        fmt::format("this is not TOML: {}", parsed.error().description()),
                        "the file may be cut, or be of another kind",
                        {}}});
  std::vector<Given> out;
  flatten_toml(parsed.table(), {}, file, out);
  return out;
}

}  // namespace orrery::plan
