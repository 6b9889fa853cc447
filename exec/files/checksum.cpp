// CRC-32, eight bytes at a time by tables made at compile time ("slicing by 8", Kounavis and Berry, 2005).
#include "exec/files/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace orrery::exec {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1U) ? 0xedb88320U ^ (c >> 1) : c >> 1;
    t[0][i] = c;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xffU];
  return t;
}

constexpr Tables kTables = make_tables();
static_assert(std::endian::native == std::endian::little, "checkpoints are written little endian");

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xffU];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xffU];
  return ~crc;
}

// A CRC is a polynomial over GF(2), highest power in the lowest bit; bytes behind it multiply it by a power of x.
std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) {
  const auto product = [](std::uint32_t a, std::uint32_t b) {
    std::uint32_t out = 0;
    for (std::uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
      if (a & bit) out ^= b;
      b = (b & 1U) ? (b >> 1) ^ 0xedb88320U : b >> 1;
    }
    return out;
  };
  std::uint32_t power = 1U << 31, square = 1U << 23;  // x^0 and x^8: one byte
  for (auto bytes = static_cast<std::uint64_t>(second_bytes); bytes != 0; bytes >>= 1) {
    if (bytes & 1U) power = product(square, power);
    square = product(square, square);
  }
  return product(power, first) ^ second;
}

}  // namespace orrery::exec
