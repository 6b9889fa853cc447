// Builds a tree from JsonReader's values.
#include "base/json_tree.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace orrery::base {
namespace {

using nlohmann::json;

json number_of(std::string_view word) {
  const char* const end = word.data() + word.size();
  std::int64_t whole = 0;
  if (const auto [at, failure] = std::from_chars(word.data(), end, whole); failure == std::errc{} && at == end)
    return whole;
  double value = 0;
  std::from_chars(word.data(), end, value);  // cannot fail: JsonReader has read it before
  return value;
}

class TreeReader {
 public:
  TreeReader(std::string_view text, const std::string& file, std::size_t most) : in_(text, file), left_(most) {}

  Result<json> read() {
    json out = value();
    in_.finish();
    if (in_.failed()) return fail(in_.errors());
    return out;
  }

 private:
  json value() {
    const char kind = in_.kind();
    if (left_ == 0) in_.error("more values than files of this kind may have", "E0108");
    if (in_.failed()) return nullptr;
    --left_;
    switch (kind) {
      case '{': {
        json out = json::object();
        in_.open_object();
        for (std::string key; in_.key(key);) out.emplace(key, value());
        return out;
      }
      case '[': {
        json out = json::array();
        in_.open_array();
        while (in_.item()) out.push_back(value());
        return out;
      }
      case '"': return in_.text();
      case '0': return number_of(in_.number_word());
      case 'b': return in_.boolean();
      default: in_.skip(); return nullptr;  // null, or an error
    }
  }

  JsonReader in_;
  std::size_t left_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& file, std::size_t most_values) {
  return TreeReader(text, file, most_values).read();
}

json parse_json_line(std::string_view line) {
  auto parsed = parse_json(line, "");
  return parsed && parsed->is_object() ? std::move(*parsed) : json(nullptr);
}

std::optional<std::int64_t> whole_number(const json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return std::nullopt;
  const auto whole = value.get<std::int64_t>();
  return whole >= low && whole <= high ? std::optional(whole) : std::nullopt;
}

}  // namespace orrery::base
