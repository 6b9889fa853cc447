#pragma once
/// Families of operators with the same cost per element on a device whose vector units, not its memory, limit them. A
/// coefficient of each family says how fast that is (device.vector.NAME.rate).
#include <array>
#include <cstddef>
#include <cstdint>

namespace orrery::models {

enum class PriceFamily : std::uint8_t {
  copy,
  reduction,
  activation,
  activation_grad,
  normalisation,
  normalisation_grad,
  softmax,
  scores,  ///< the exponentials inside attention
  optimizer,
  norm_squared,  ///< of gradients, summed in double precision
  embedding,
  factored,  ///< Adafactor's passes
  quantised  ///< moments in 8 bits
};

struct PriceFamilyTraits {
  PriceFamily family{};
  const char* name = "";
  bool one_kernel = false;  ///< every framework runs it as one kernel per tensor
  bool sweeps = false;      ///< walks over more than any cache holds, one bucket after another
};

inline constexpr auto kPriceFamilies = std::to_array<PriceFamilyTraits>({
    {PriceFamily::copy, "copy"},
    {PriceFamily::reduction, "reduction"},
    {PriceFamily::activation, "activation"},
    {PriceFamily::activation_grad, "activation_grad"},
    {PriceFamily::normalisation, "normalisation"},
    {PriceFamily::normalisation_grad, "normalisation_grad"},
    {PriceFamily::softmax, "softmax"},
    {.family = PriceFamily::scores, .name = "scores", .one_kernel = true},
    {.family = PriceFamily::optimizer, .name = "optimizer", .one_kernel = true, .sweeps = true},
    {.family = PriceFamily::norm_squared, .name = "norm_squared", .one_kernel = true},
    {.family = PriceFamily::embedding, .name = "embedding", .one_kernel = true},
    {.family = PriceFamily::factored, .name = "factored", .one_kernel = true, .sweeps = true},
    {.family = PriceFamily::quantised, .name = "quantised", .one_kernel = true, .sweeps = true},
});

static_assert(
    [] {
      for (std::size_t i = 0; i < kPriceFamilies.size(); ++i)
        if (static_cast<std::size_t>(kPriceFamilies[i].family) != i) return false;
      return kPriceFamilies.back().family == PriceFamily::quantised;
    }(),
    "each family has its row, in the order of the enumeration");

[[nodiscard]] constexpr const PriceFamilyTraits& traits_of(PriceFamily family) {
  return kPriceFamilies[static_cast<std::size_t>(family)];
}
[[nodiscard]] constexpr const char* name_of(PriceFamily family) {
  return traits_of(family).name;
}

}  // namespace orrery::models
