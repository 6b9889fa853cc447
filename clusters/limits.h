#pragma once
/// Bounds on the values in a cluster file: wide enough for any machine, narrow enough that sums stay finite and memory
/// suffices.
#include <string>
#include <vector>

#include "base/yaml.h"

namespace orrery::clusters {

inline constexpr double kLeastRate = 1;  ///< bytes/s or FLOP/s: zero and negative rates are errors
inline constexpr double kMostRate = 1e21;
inline constexpr double kMostBandwidth = 1e15;
inline constexpr double kLeastBytes = 1;
inline constexpr double kMostBytes = 1e18;
inline constexpr double kMostSeconds = 1;          ///< of one link
inline constexpr int kMostParts = 4096;            ///< devices of a node, links of a device
inline constexpr int kMostSm = 1000;               ///< a compute capability as NCCL writes it: 90 for 9.0
inline constexpr int kMostSwitches = 64;           ///< sockets, boards, PCIe switches and NICs of one node, each
inline constexpr int kMostMesh = 256;              ///< devices in a full mesh: links grow with their square
inline constexpr std::size_t kMostDimensions = 6;  ///< of a torus
inline constexpr double kLeastEfficiency = 0.01;
inline constexpr int kMostChain = 16;  ///< length of a chain of `like`
inline constexpr int kMostDevices = 1 << 18;
inline constexpr double kMostVertices = 2'000'000;  ///< in a graph: about 300 MB

/// A list of strings, or one string; empty when missing.
[[nodiscard]] std::vector<std::string> read_sources(const base::Cursor& at);

}  // namespace orrery::clusters
