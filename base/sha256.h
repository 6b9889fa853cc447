#pragma once
/// SHA-256 (FIPS 180-4), to name inputs by what is in them.
#include <string>
#include <string_view>

namespace orrery::base {

/// 64 hexadecimal digits.
[[nodiscard]] std::string sha256(std::string_view bytes);

}  // namespace orrery::base
