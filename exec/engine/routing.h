#pragma once
/// What routers of all backends have in common.
#include <cstdint>
#include <string>

namespace orrery::exec {

/// Added to a sum of chosen sigmoids, all of which may be next to nothing (as in DeepSeek-V3's published code).
inline constexpr float kLeastSum = 1e-20F;

/// Failures of a router or a slot, in words.
[[nodiscard]] std::string scores_not_finite(std::int64_t token);
[[nodiscard]] std::string slot_overflow(std::int64_t slot, std::int64_t experts, std::int64_t rows,
                                        std::int64_t capacity);

}  // namespace orrery::exec
