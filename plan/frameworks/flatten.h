#pragma once
/// Settings of files with sections: TOML, and JSON with its objects. A key is the path of its value.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/frameworks/settings.h"

namespace orrery::plan {

/// E0651: the text is not TOML.
[[nodiscard]] base::Result<std::vector<Given>> toml_settings(std::string_view text, const std::string& file);
/// E0101 and the like: the text is not JSON. A value that begins with `$` is one that is missing.
[[nodiscard]] base::Result<std::vector<Given>> json_settings(std::string_view text, const std::string& file);

}  // namespace orrery::plan
