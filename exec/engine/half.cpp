// Conversions of 16-bit values and random bits.
#include "exec/engine/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "base/random.h"

namespace orrery::exec {

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float from_fp16(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<Eigen::half>(bits));
}

std::uint16_t to_fp16(float value) {
  return std::bit_cast<std::uint16_t>(Eigen::half(value));
}

bool is_16_bit(models::DType dtype) {
  return dtype == models::DType::bf16 || dtype == models::DType::fp16;
}

namespace {

std::uint16_t at(const std::byte* stored, std::size_t i) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, stored + 2 * i, sizeof bits);
  return bits;
}
void put(std::byte* stored, std::size_t i, std::uint16_t bits) {
  std::memcpy(stored + 2 * i, &bits, sizeof bits);
}

// fp16 by the processor's own conversions, eight at a time; returns how many were converted. Sums of gradients over MPI
// spent most of their time in single conversions.
#if defined(__x86_64__)
bool converts_fp16() {
  static const bool can = [] {  // __builtin_cpu_supports("f16c") is unknown to clang before 15
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return can;
}
[[gnu::target("avx,f16c")]] std::size_t widen_eights(const std::byte* stored, std::span<float> values) {
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8)
    _mm256_storeu_ps(values.data() + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + 2 * i))));
  return i;
}
[[gnu::target("avx,f16c")]] std::size_t narrow_eights(std::span<const float> values, std::byte* stored) {
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(stored + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(values.data() + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#else
bool converts_fp16() {
  return false;
}
std::size_t widen_eights(const std::byte*, std::span<float>) {
  return 0;
}
std::size_t narrow_eights(std::span<const float>, std::byte*) {
  return 0;
}
#endif

}  // namespace

void widen(models::DType dtype, const std::byte* stored, std::span<float> values) {
  if (dtype == models::DType::fp32) {
    std::memcpy(values.data(), stored, values.size_bytes());
    return;
  }
  ENSURE(is_16_bit(dtype), "{} is no stored floating type", models::name_of(dtype));
  const bool at_once = dtype == models::DType::fp16 && converts_fp16();
  for (std::size_t i = at_once ? widen_eights(stored, values) : 0; i < values.size(); ++i)
    values[i] = dtype == models::DType::bf16 ? from_bf16(at(stored, i)) : from_fp16(at(stored, i));
}

void narrow(models::DType dtype, std::span<const float> values, std::byte* stored) {
  if (dtype == models::DType::fp32) {
    std::memcpy(stored, values.data(), values.size_bytes());
    return;
  }
  ENSURE(is_16_bit(dtype), "{} is no stored floating type", models::name_of(dtype));
  const bool at_once = dtype == models::DType::fp16 && converts_fp16();
  for (std::size_t i = at_once ? narrow_eights(values, stored) : 0; i < values.size(); ++i)
    put(stored, i, dtype == models::DType::bf16 ? to_bf16(values[i]) : to_fp16(values[i]));
}

std::uint16_t to_bf16_randomly(float value, std::uint32_t random) {
  if (!std::isfinite(value)) return to_bf16(value);
  // Adding below the last place rounds away from zero as often as the cut part says. A carry beyond the largest number
  // gives infinity, as in any rounding.
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + (random & 0xffffU)) >> 16);
}

RandomBits::RandomBits(std::uint64_t seed, std::uint64_t stream, std::int64_t step)
    : key_(seed ^ stream * 0x9E3779B97F4A7C15ULL), step_(static_cast<std::uint64_t>(step)) {}

// Each call of the generator gives eight elements.
void RandomBits::draw(std::int64_t first, std::span<std::uint16_t> bits) const {
  constexpr std::uint64_t kServed = 8;
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  std::array<std::uint32_t, 4> drawn{};
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto element = static_cast<std::uint64_t>(first) + i;
    const std::uint64_t group = element / kServed, place = element % kServed;
    if (i == 0 || place == 0)
      drawn = base::philox({low(group), high(group), low(step_), high(step_)}, {low(key_), high(key_)});
    bits[i] = static_cast<std::uint16_t>(drawn[place / 2] >> (place % 2 == 0 ? 0 : 16));
  }
}

}  // namespace orrery::exec
