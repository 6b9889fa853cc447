#pragma once
/// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11).
/// A number depends on (seed, stream, index) alone, so any sharding of a tensor over ranks draws the same values.
#include <array>
#include <cstdint>
#include <string_view>

namespace orrery::base {

[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key);

/// A stable 64-bit id of a name (FNV-1a), used as the stream of a tensor.
[[nodiscard]] std::uint64_t stream_of(std::string_view name);

/// Uniform in [0, 1): element `index` of stream `stream` under `seed`.
[[nodiscard]] double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
/// Standard normal by Box-Muller; element `index` of stream `stream` under `seed`.
[[nodiscard]] double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
/// Uniform integer in [0, bound); the modulo bias is negligible for bound < 2^32.
[[nodiscard]] std::uint64_t below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace orrery::base
