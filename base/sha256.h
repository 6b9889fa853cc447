#pragma once
/// SHA-256 (FIPS 180-4), which names inputs by their content.
#include <string>
#include <string_view>

namespace orrery::base {

/// 64 hexadecimal digits.
[[nodiscard]] std::string sha256(std::string_view bytes);

}  // namespace orrery::base
