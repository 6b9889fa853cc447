#pragma once
/// The GPUs of this machine, as reported by NVIDIA's driver and its management library. Both are opened at run time and
/// never linked: nothing here fails if they are absent.
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::exec {

struct Gpu {
  int index = 0;  ///< as CUDA numbers them
  std::string name, pci;
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  double clock_hz = 0;
  double memory_bandwidth_bytes_per_s = 0;  ///< memory clock x 2 x bus width; 0: not reported by the driver
  // From the management library; empty or 0 if it is absent.
  std::string uuid;
  double power_limit_w = 0;
  int pcie_generation = 0, pcie_width = 0, nvlinks = 0;
};

struct GpuReport {
  std::vector<Gpu> gpus;
  std::string cuda_driver;  ///< highest CUDA version that the driver supports: "13.0"; empty without a driver
  std::string nvml_driver;  ///< the driver's own version: "580.65.06"; empty without the management library
  std::string reason;       ///< why there are no GPUs; empty if there are
};

/// Starts the driver (cuInit) but makes no context, so nothing on the GPU is touched.
[[nodiscard]] GpuReport find_gpus();

}  // namespace orrery::exec
