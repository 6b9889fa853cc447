#pragma once
/// A JSON text as a tree, for what cannot be read in one pass. Read by JsonReader, so whatever that refuses is refused:
/// nothing in the tree is nested deeper than 64, so that copying, writing and destroying it take a bounded stack.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::base {

/// The one value of `text`. E0108 beyond `most_values` values; else as JsonReader.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& file,
                                                std::size_t most_values = 1'000'000);

/// A line that another process wrote: an object, or null when it is none.
[[nodiscard]] nlohmann::json parse_json_line(std::string_view line);

/// The whole number of a value; nothing when it is none, or outside of `low` to `high`. nlohmann's own get() casts.
[[nodiscard]] std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t low,
                                                       std::int64_t high);

}  // namespace orrery::base
