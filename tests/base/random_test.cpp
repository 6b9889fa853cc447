// Philox against Random123's known answers, and what is drawn from it.
#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::base {
namespace random_test {

using Words = std::array<std::uint32_t, 4>;

// Random123, tests/kat_vectors, lines "philox4x32 10".
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Noll's published test vectors of FNV-1a, 64 bit.
TEST(StreamOf, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8U);
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  double sum = 0;
  double squares = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    const double u = uniform(1, 2, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / n, 0.5, 4 * std::sqrt(1.0 / 12 / n));  // four standard errors
  EXPECT_NEAR(squares / n, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / n));
}

TEST(Normal, HasMeanZeroVarianceOneAndKurtosisThree) {
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    const double x = normal(7, stream_of("h.0.mlp.fc.weight"), static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(1.0 / n));
  EXPECT_NEAR(squares / n, 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourths / n, 3, 4 * std::sqrt(96.0 / n));
}

TEST(Draws, DependOnSeedStreamAndIndexAlone) {
  EXPECT_EQ(normal(1, 2, 3), normal(1, 2, 3));
  EXPECT_NE(normal(1, 2, 3), normal(2, 2, 3));
  EXPECT_NE(normal(1, 2, 3), normal(1, 3, 3));
  EXPECT_NE(normal(1, 2, 3), normal(1, 2, 4));
  EXPECT_NE(uniform(1, 2, 3), uniform(1, 2, 3 + (std::uint64_t{1} << 32)));
}

TEST(Below, ReachesEveryValueAndNothingElse) {
  std::array<int, 5> seen{};
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::uint64_t v = below(5, 1, 2, i);
    ASSERT_LT(v, 5U);
    ++seen[v];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 4 * std::sqrt(800.0));
  EXPECT_EQ(below(1, 1, 2, 3), 0U);
}

}  // namespace random_test
}  // namespace orrery::base
