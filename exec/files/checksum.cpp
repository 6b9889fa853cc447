// CRC-32 by zlib.
#include "exec/files/checksum.h"

#include <zlib.h>

#include <limits>

#include "base/ensure.h"

namespace orrery::exec {

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t seed) {
  if (bytes.empty()) return seed;  // given no address, zlib would start over
  return static_cast<std::uint32_t>(::crc32_z(seed, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) {
  ENSURE(second_bytes >= 0 && second_bytes <= std::numeric_limits<z_off_t>::max(), "a run of {} bytes", second_bytes);
  return static_cast<std::uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

}  // namespace orrery::exec
