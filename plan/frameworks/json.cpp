// JSON by the strict reader of base/.
#include <fmt/core.h>

#include <algorithm>

#include "base/yaml.h"
#include "plan/frameworks/flatten.h"

namespace orrery::plan {
namespace {

/// The scalars of a value; of a list those of its lists as well.
void scalars_of(const base::Cursor& at, std::vector<GivenValue>& out) {
  for (const base::Cursor& item : at.one_or_many()) {
    if (item.is_sequence()) scalars_of(item, out);
    if (!item.is_scalar()) continue;
    GivenValue value{item.scalar_text(), item.where()};
    if (value.text.starts_with("$")) value.missing = value.text;
    out.push_back(std::move(value));
  }
}

void flatten_json(const base::Cursor& at, const std::string& path, std::vector<Given>& out) {
  if (at.is_map()) {
    for (const std::string& key : at.keys())
      flatten_json(at.optional(key), path.empty() ? key : fmt::format("{}.{}", path, key), out);
    return;
  }
  if (!at.exists() || path.empty()) return;
  Given one{path, at.where(), {}};
  scalars_of(at, one.values);
  if (!one.values.empty()) out.push_back(std::move(one));
}

}  // namespace

base::Result<std::vector<Given>> json_settings(std::string_view text, const std::string& file) {
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '\t', ' ');  // YAML, which JSON is read as, has no tabs for indentation
  const base::Document document = base::Document::parse(plain, file);
  if (!document.root().exists() || document.findings().failed()) return base::fail(document.findings().all());
  std::vector<Given> out;
  flatten_json(document.root(), {}, out);
  return out;
}

}  // namespace orrery::plan
