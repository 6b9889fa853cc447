#pragma once
/// What dumps do not say, as data with sources: clusters/import/known.yaml.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"

namespace orrery::clusters {

struct KnownGpu {
  std::string device;              ///< entry of clusters/catalog/devices
  int sm = 0;                      ///< compute capability, 80 for 8.0
  int nvlinks = 0;                 ///< per GPU
  std::vector<std::string> pci;    ///< "10de:20b0"
  std::vector<std::string> names;  ///< prefixes of the driver's name for it
};

struct KnownCpu {
  std::string vendor;  ///< "GenuineIntel"
  int family = 0;      ///< as NCCL writes it: family + 16 x extended family
  std::vector<std::int64_t> models;
  BytesPerSecond socket;  ///< between sockets, for GPUs
  BytesPerSecond memory;  ///< of one socket
};

/// A bandwidth that depends on a GPU's compute capability.
struct BySm {
  int sm = 0;
  BytesPerSecond bandwidth;
};

struct Known {
  std::vector<KnownGpu> gpus;
  std::vector<KnownCpu> cpus;
  std::vector<BySm> nvlinks, pcie;
  BytesPerSecond unknown_socket, unknown_memory;
  Seconds nvlink_latency, pcie_latency, socket_latency, nic_latency, hop_latency;
};

[[nodiscard]] base::Result<Known> parse_known(std::string_view text, std::string file);

/// The GPU that the driver calls `name`, by the longest matching prefix. Null when none matches.
[[nodiscard]] const KnownGpu* gpu_called(const Known& known, std::string_view name);
[[nodiscard]] const KnownGpu* gpu_of_pci(const Known& known, std::string_view pci);
[[nodiscard]] const KnownCpu* cpu_of(const Known& known, std::string_view vendor, int family, int model);
/// The entry for this compute capability, or the nearest one below it (8.6 as 8.0); null when there is none.
[[nodiscard]] const BySm* of_sm(const std::vector<BySm>& entries, int sm);

}  // namespace orrery::clusters
