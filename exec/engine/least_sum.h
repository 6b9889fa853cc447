#pragma once
/// A constant of all routers, apart from the rest, so that device code can include it.

namespace orrery::exec {

/// Added to a sum of chosen sigmoids, all of which may be next to nothing (as in DeepSeek-V3's published code).
inline constexpr float kLeastSum = 1e-20F;

}  // namespace orrery::exec
