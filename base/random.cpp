// Philox 4x32-10 and the distributions drawn from it.
#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/ensure.h"

namespace orrery::base {
namespace {

// Multipliers and Weyl increments of Philox 4x32: Salmon et al. 2011, section 4.2 and Random123's philox.h.
constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

std::array<std::uint32_t, 4> draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return philox({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
}

// 53 random bits as a double in [0, 1).
double unit(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(a >> 5) << 26) | (b >> 6);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiplier0 * counter[0];
    const std::uint64_t p1 = kMultiplier1 * counter[2];
    counter = {high(p1) ^ counter[1] ^ key[0], low(p1), high(p0) ^ counter[3] ^ key[1], low(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bit: offset basis and prime
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto r = draw(seed, stream, index);
  return unit(r[0], r[1]);
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto r = draw(seed, stream, index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(r[0], r[1])));  // 1 - u is in (0, 1]: the log is finite
  return radius * std::cos(2.0 * std::numbers::pi * unit(r[2], r[3]));
}

std::uint64_t below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  ENSURE(bound > 0, "bound {}", bound);
  const auto r = draw(seed, stream, index);
  const std::uint64_t bits = (static_cast<std::uint64_t>(r[0]) << 32) | r[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * bound) >> 64);  // Lemire 2019, without the rejection
}

}  // namespace orrery::base
