#pragma once
/// Dropout masks from counter-based random numbers (Philox 4x32-10; Salmon et al. 2011, "Parallel Random Numbers: As
/// Easy as 1, 2, 3"). Whether a value is dropped depends only on the run's seed, the training step, the number of the
/// sequence within the step, the place in the model and the value's place in the sequence. It does not depend on the
/// rank, the micro-batch or the pass. So no mask is stored: backward and recomputation draw it again, and every split
/// of the model draws the same one.
///
/// One draw serves eight neighbours with 16 bits each. Rates are therefore multiples of 2^-16. The kept values are
/// scaled by exactly that rate, so that the expectation does not change.
#include <array>
#include <cmath>
#include <cstdint>

#include "base/random.h"

namespace orrery::models {

/// Places in a block that draw masks; together with the block's number they give an operator's `site`.
enum class DropoutPlace { attention, attention_branch, mlp_branch };
inline constexpr std::int32_t kEmbeddingSite = -1;
[[nodiscard]] constexpr std::int32_t dropout_site(std::int64_t layer, DropoutPlace place) {
  constexpr std::int64_t kPlaces = 4;
  return static_cast<std::int32_t>(layer * kPlaces) + static_cast<std::int32_t>(place);
}

inline constexpr std::uint32_t kDropoutLevels = 1U << 16U;
inline constexpr std::uint64_t kDropoutServed = 8;  ///< elements per draw

/// How many of the 2^16 values of 16 random bits mean that the element is dropped.
[[nodiscard]] inline std::uint32_t dropout_threshold(double rate) {
  return static_cast<std::uint32_t>(std::lround(rate * kDropoutLevels));
}
/// The factor that scales the kept elements.
[[nodiscard]] inline double dropout_scale(double rate) {
  return static_cast<double>(kDropoutLevels) / (kDropoutLevels - dropout_threshold(rate));
}

/// Philox's key. It differs for every step of a run, and is never the seed itself, which draws the weights.
[[nodiscard]] constexpr std::uint64_t dropout_key(std::uint64_t seed, std::int64_t step) {
  return seed ^ 0x9E3779B97F4A7C15ULL * (static_cast<std::uint64_t>(step) + 1);
}

/// Selects the mask; the rest of the counter is the element's place in it. For a row of the residual, element =
/// position * width + column; for attention probabilities, ((head * T) + query) * T + key. Heads, positions, columns
/// and T are the whole model's.
struct DropoutMask {
  std::uint64_t key = 0;
  std::uint32_t site = 0, sequence = 0;
};

/// The 16 bits of an element. This is the definition that the backends' kernels are tested against.
[[nodiscard]] inline std::uint32_t dropout_bits(const DropoutMask& mask, std::uint64_t element) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32U); };
  const std::uint64_t group = element / kDropoutServed, place = element % kDropoutServed;
  const std::array<std::uint32_t, 4> drawn =
      base::philox({low(group), high(group), mask.site, mask.sequence}, {low(mask.key), high(mask.key)});
  return drawn[place / 2] >> (place % 2 == 0 ? 0U : 16U) & 0xFFFFU;
}

}  // namespace orrery::models
