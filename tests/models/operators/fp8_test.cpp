// The 8-bit formats against their definition, and the scale that a tensor gets.
#include "models/operators/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

namespace orrery::models {
namespace fp8_test {

/// Micikevicius et al. 2022, table 1: a sign, an exponent and a mantissa; e4m3 gives up its infinities for one more
/// binary order and keeps one NaN a sign.
double defined(std::uint32_t code, Fp8 kind) {
  const int bits = kind == Fp8::e4m3 ? 3 : 2, bias = kind == Fp8::e4m3 ? 7 : 15;
  const double sign = (code & 0x80U) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code & 0x7FU) >> bits, mantissa = static_cast<int>(code) & ((1 << bits) - 1);
  if (kind == Fp8::e4m3 && (code & 0x7FU) == 0x7FU) return std::nan("");
  if (kind == Fp8::e5m2 && exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  const double fraction = static_cast<double>(mantissa) / (1 << bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

class Fp8Formats : public ::testing::TestWithParam<Fp8> {};

TEST_P(Fp8Formats, HaveTheValuesOfTheirDefinition) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const double expected = defined(code, GetParam()), found = static_cast<double>(fp8_value(code, GetParam()));
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found)) << code;
    else
      EXPECT_EQ(found, expected) << code;
    EXPECT_EQ(std::signbit(found), (code & 0x80U) != 0) << code;
  }
  const Fp8Format f = format_of(GetParam());
  EXPECT_EQ(fp8_value(f.largest, GetParam()), GetParam() == Fp8::e4m3 ? 448.0F : 57344.0F);
  EXPECT_EQ(std::ldexp(1.75F, f.top), fp8_value(f.largest, GetParam()));
}

TEST_P(Fp8Formats, GiveEachValueItsOwnCode) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = fp8_value(code, GetParam());
    if (std::isfinite(value)) {
      EXPECT_EQ(fp8_code(value, GetParam()), code);
    } else if (std::isnan(value)) {
      EXPECT_EQ(fp8_code(value, GetParam()), (code & 0x80U) | kFp8Nan);
    } else {
      EXPECT_EQ(fp8_code(value, GetParam()), (code & 0x80U) | format_of(GetParam()).largest) << "saturated";
    }
  }
}

TEST_P(Fp8Formats, RoundToNearestAndTiesToEven) {
  const Fp8 kind = GetParam();
  const std::uint32_t largest = format_of(kind).largest;
  for (std::uint32_t code = 0; code < largest; ++code) {
    const float low = fp8_value(code, kind), high = fp8_value(code + 1, kind), middle = low + (high - low) / 2;
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t bit = sign < 0 ? 0x80U : 0;
      EXPECT_EQ(fp8_code(sign * middle, kind), bit | (code % 2 == 0 ? code : code + 1)) << middle;
      EXPECT_EQ(fp8_code(sign * std::nextafter(middle, 0.0F), kind), bit | code) << middle;
      EXPECT_EQ(fp8_code(sign * std::nextafter(middle, high), kind), bit | (code + 1)) << middle;
    }
  }
  const float most = fp8_value(largest, kind);
  for (const float beyond : {std::nextafter(most, HUGE_VALF), 2 * most, HUGE_VALF})
    EXPECT_EQ(fp8_code(beyond, kind), largest);
  EXPECT_EQ(fp8_code(1e-44F, kind), 0U) << "a denormal of fp32";
  EXPECT_EQ(fp8_code(-0.0F, kind), 0x80U);
}

TEST_P(Fp8Formats, RoundRandomValuesToTheNearest) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 20000; ++i) {
    const float value = normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 30) - 20);
    const float found = fp8_value(fp8_code(value, GetParam()), GetParam());
    float distance = HUGE_VALF;
    for (std::uint32_t code = 0; code < 256; ++code)
      if (const float other = fp8_value(code, GetParam()); std::isfinite(other))
        distance = std::min(distance, std::abs(other - value));
    ASSERT_EQ(std::abs(found - value), distance) << value;
  }
}

TEST_P(Fp8Formats, AreScaledByThePowerOfTwoThatClipsNothing) {
  const Fp8 kind = GetParam();
  const float most = fp8_value(format_of(kind).largest, kind);
  std::mt19937 random(6);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random() % 0x7F80U) << 16U;  // any finite bf16
    const float value = std::bit_cast<float>(bits), scale = fp8_scale(bits, kind);
    int exponent = 0;
    ASSERT_EQ(std::frexp(scale, &exponent), 0.5F) << "a power of two";
    ASSERT_EQ(scale * fp8_descale(bits, kind), 1.0F);
    ASSERT_LE(value * scale, most) << value;
    if (bits == 0 || exponent - 1 == 126) continue;  // nothing to scale, or the largest scale there is
    ASSERT_GT(2 * value * scale, most) << value;
  }
}

TEST_P(Fp8Formats, HaveNoScaleForWhatIsNotFinite) {
  for (const float value : {HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
    EXPECT_EQ(fp8_scale(bits, GetParam()), 1.0F);
    EXPECT_TRUE(std::isnan(fp8_descale(bits, GetParam()))) << "products of it must not look finite";
  }
  EXPECT_EQ(fp8_scale(0, GetParam()), 1.0F);
  EXPECT_EQ(fp8_descale(0, GetParam()), 1.0F);
}

// Why a split changes next to nothing: of another scale values have other codes of the same meaning.
TEST_P(Fp8Formats, RoundTheSameByAnyScaleAboveTheirDenormals) {
  const Fp8 kind = GetParam();
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(1, 2);
  for (int i = 0; i < 2000; ++i) {
    const float value = uniform(random);
    const auto by = [&](int exponent) {
      return std::ldexp(fp8_value(fp8_code(std::ldexp(value, exponent), kind), kind), -exponent);
    };
    for (int exponent = 1 - format_of(kind).bias; exponent < format_of(kind).top; ++exponent)
      ASSERT_EQ(by(exponent), by(0)) << value << " times 2^" << exponent;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Fp8Formats, ::testing::Values(Fp8::e4m3, Fp8::e5m2),
                         [](const auto& kind) { return kind.param == Fp8::e4m3 ? "e4m3" : "e5m2"; });

TEST(Fp8Products, AreOfSizesThatTensorCoresTake) {
  EXPECT_TRUE(fits_fp8(16, 32, 48));
  EXPECT_FALSE(fits_fp8(8, 32, 48));
  EXPECT_FALSE(fits_fp8(16, 40, 48));
  EXPECT_FALSE(fits_fp8(16, 32, 50));
  const Fp8Casts casts(16, 32, 48);
  EXPECT_EQ(casts.a, 256);
  EXPECT_EQ(casts.b, 256 + 16 * 48);
  EXPECT_EQ(casts.bytes, 256 + (16 + 32) * 48);
}

TEST(Tf32, KeepsTenBitsOfMantissaAndTheRangeOfFp32) {
  EXPECT_EQ(tf32_value(1.0F + 0x1p-10F), 1.0F + 0x1p-10F);
  EXPECT_EQ(tf32_value(1.0F + 0x1p-11F), 1.0F + 0x1p-10F) << "a tie goes away from zero";
  EXPECT_EQ(tf32_value(-1.0F - 0x1p-11F), -1.0F - 0x1p-10F);
  EXPECT_EQ(tf32_value(1.0F + 0x1p-11F - 0x1p-23F), 1.0F);
  EXPECT_EQ(tf32_value(0x1p-120F), 0x1p-120F);
  EXPECT_EQ(tf32_value(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isnan(tf32_value(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace fp8_test
}  // namespace orrery::models
