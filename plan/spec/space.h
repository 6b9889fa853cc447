#pragma once
/// The memories that a rank has values in.
#include <cstddef>
#include <cstdint>

namespace orrery::plan {

/// Memories of a rank: the device's own, its share of the host's, files on the node's drives.
enum class Space : std::uint8_t { device, host, nvme };
inline constexpr std::size_t kSpaces = 3;

}  // namespace orrery::plan
