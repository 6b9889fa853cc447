#pragma once
/// Bandwidths that follow from a link's signalling rate and coding.

namespace orrery::clusters {

inline constexpr double kPcieGeneration3 = 8.0;  ///< GT/s per lane
inline constexpr int kPcieLanes = 16;
inline constexpr double kPower9Link = 25e9;  ///< bytes/s of one NVLink 2 into a POWER9

/// Bytes/s in one direction. PCI Express Base Specification: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, above that
/// flits with 236 bytes of payload in 256.
[[nodiscard]] constexpr double pcie_bandwidth(double giga_transfers, int lanes) {
  const double efficiency = giga_transfers <= 5 ? 8.0 / 10 : giga_transfers <= 32 ? 128.0 / 130 : 236.0 / 256;
  return giga_transfers * 1e9 / 8 * efficiency * lanes;
}

}  // namespace orrery::clusters
