#pragma once
/// What this machine is: processors, caches, memory, network interfaces and GPUs, each number with its source. Only
/// looks, without measuring; needs no special rights, no driver and no GPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace orrery::exec {

struct CacheLevel {
  int level = 0;           ///< 1 (data), 2, 3
  std::int64_t bytes = 0;  ///< of each
  int count = 0;           ///< in the machine
  int cores = 0;           ///< that share each
  bool operator==(const CacheLevel&) const = default;
};

struct NumaNode {
  std::int64_t memory_bytes = 0;
  int cores = 0;
};

struct NetworkInterface {
  std::string name;                  ///< "eth0", "mlx5_0"
  std::string kind;                  ///< "ethernet", "openfabrics"
  std::string pci;                   ///< address; empty for a virtual one
  double bandwidth_bytes_per_s = 0;  ///< 0: unknown (links that are down or virtual do not report it)
};

/// A display or 3D controller, or another accelerator, as seen on the PCI bus, even without a driver.
struct PciDevice {
  std::string address;  ///< "0000:3b:00.0"
  std::string vendor, name;
  int vendor_id = 0, device_id = 0;
  double link_bandwidth_bytes_per_s = 0;  ///< 0: unknown
};

/// A number with its source: "hwloc 2.9.0", "/proc/cpuinfo".
struct Sourced {
  double value = 0;
  std::string source;
};

struct Processor {
  std::string model;   ///< as the CPU names itself
  std::string vendor;  ///< "GenuineIntel", "AuthenticAMD"; empty: unknown
  int packages = 1, cores = 1, threads = 1;
  std::string vector;  ///< "AVX-512", "AVX2", "SSE2", "NEON"
  Sourced clock_hz;
  Sourced flop_per_cycle;  ///< fp32, of one core
};

struct MachineDescription {
  std::string host, system;  ///< "Linux 6.1.0 x86_64"
  std::string tool;          ///< "hwloc 2.9.0"
  Processor processor;
  std::vector<CacheLevel> caches;  ///< innermost first; data and unified ones
  std::vector<NumaNode> numa;
  Sourced memory_bytes;  ///< that processes here may use
  std::vector<NetworkInterface> networks;
  std::vector<PciDevice> accelerators;
  [[nodiscard]] const CacheLevel* cache(int level) const;
};

struct DescribeOptions {
  std::string topology_xml;       ///< hwloc's XML of another machine instead of this one; for tests
  std::string system_root = "/";  ///< where proc/cpuinfo and sys/ are read; for tests
};

/// Throws Failure (environment) if hwloc fails.
[[nodiscard]] MachineDescription describe_machine(const DescribeOptions& options = {});

/// The widest vector instructions in the flags of /proc/cpuinfo, and their fp32 operations per cycle and core.
struct VectorUnits {
  std::string name;
  double flop_per_cycle = 0;
  std::string reason;
};
[[nodiscard]] VectorUnits vector_units(const std::string& flags, const std::string& architecture);

/// "2.60GHz" in a processor's name, in Hz; nothing if there is no clock in it.
[[nodiscard]] std::optional<double> clock_in_name(const std::string& model);

}  // namespace orrery::exec
