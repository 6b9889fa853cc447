#pragma once
/// A JSON text as a tree, for texts that cannot be read in one pass. JsonReader reads it, so it refuses the same input;
/// nothing nests deeper than 64, which bounds the stack that copying, writing and destroying the tree take.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::base {

/// The one value of `text`. E0108 beyond `most_values` values; otherwise the errors of JsonReader.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& file,
                                                std::size_t most_values = 1'000'000);

/// A line that another process wrote: an object, or null if it is not one.
[[nodiscard]] nlohmann::json parse_json_line(std::string_view line);

/// The value as a whole number; nothing if it is not one, or lies outside `low` to `high`. nlohmann's own get() casts.
[[nodiscard]] std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t low,
                                                       std::int64_t high);

}  // namespace orrery::base
