#pragma once
/// CRC-32 (IEEE 802.3, reflected, as in zlib and PNG), for checkpoint files.
#include <cstddef>
#include <cstdint>
#include <span>

namespace orrery::exec {

/// Continues `seed` (0 to begin) over `bytes`. crc32("123456789") is 0xcbf43926.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t seed = 0);

/// CRC of two consecutive runs of bytes, from their CRCs and the length of the second.
[[nodiscard]] std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes);

}  // namespace orrery::exec
