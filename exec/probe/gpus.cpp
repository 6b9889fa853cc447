// The few functions of libcuda and NVML that describe a GPU, declared here so that their headers need not be installed.
// Signatures and numbers: CUDA driver API, cuda.h; NVML API reference, nvml.h. Both are ABI-stable.
#include "exec/probe/gpus.h"

#include <fmt/format.h>

#include <array>

#include "exec/probe/library.h"

namespace orrery::exec {
namespace {

constexpr int kNameBytes = 256;
using Text = std::array<char, kNameBytes>;

/// CUdevice_attribute.
enum Attribute {
  clock_rate_khz = 13,
  multiprocessor_count = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_cache_bytes = 38,
  capability_major = 75,
  capability_minor = 76
};

class Cuda {
 public:
  Cuda() : library_("libcuda.so.1") {
    library_loaded_ = library_.loaded();
    const auto init = library_.find<int(unsigned)>("cuInit");
    started_ = init != nullptr && init(0) == 0;
  }
  [[nodiscard]] std::string why_not() const {
    if (!library_loaded_) return "libcuda.so.1 does not load: no NVIDIA driver";
    return "the driver loads, but no GPU answers";
  }
  [[nodiscard]] int devices() const {
    const auto count = library_.find<int(int*)>("cuDeviceGetCount");
    int n = 0;  // unchanged by a failing call
    return started_ && count != nullptr && count(&n) == 0 ? n : 0;
  }
  [[nodiscard]] std::string version() const {
    constexpr int kMajor = 1000, kMinor = 10;
    const auto version = library_.find<int(int*)>("cuDriverGetVersion");
    int n = 0;
    if (version == nullptr || version(&n) != 0 || n == 0) return {};
    return fmt::format("{}.{}", n / kMajor, n % kMajor / kMinor);
  }
  [[nodiscard]] Gpu describe(int index) const {
    constexpr double kKilo = 1e3, kTransfersPerClock = 2, kBitsPerByte = 8;
    Gpu gpu;
    gpu.index = index;
    const auto get = library_.find<int(int*, int)>("cuDeviceGet");
    int device = index;
    if (get != nullptr && get(&device, index) != 0) return gpu;
    gpu.name = text<int(char*, int, int)>("cuDeviceGetName", device);
    gpu.pci = text<int(char*, int, int)>("cuDeviceGetPCIBusId", device);
    gpu.compute_capability =
        fmt::format("{}.{}", attribute(capability_major, device), attribute(capability_minor, device));
    gpu.multiprocessors = attribute(multiprocessor_count, device);
    gpu.l2_bytes = attribute(l2_cache_bytes, device);
    gpu.clock_hz = kKilo * attribute(clock_rate_khz, device);
    gpu.memory_bandwidth_bytes_per_s = kKilo * attribute(memory_clock_khz, device) * kTransfersPerClock *
                                       attribute(memory_bus_bits, device) / kBitsPerByte;
    const auto memory = library_.find<int(std::size_t*, int)>("cuDeviceTotalMem_v2");
    std::size_t bytes = 0;
    if (memory != nullptr && memory(&bytes, device) == 0) gpu.memory_bytes = static_cast<std::int64_t>(bytes);
    return gpu;
  }

 private:
  template <class Function>
  [[nodiscard]] std::string text(const char* symbol, int device) const {
    const auto ask = library_.find<Function>(symbol);
    Text buffer{};
    if (ask == nullptr || ask(buffer.data(), kNameBytes - 1, device) != 0) return {};
    return buffer.data();
  }
  [[nodiscard]] int attribute(Attribute which, int device) const {
    const auto ask = library_.find<int(int*, int, int)>("cuDeviceGetAttribute");
    int value = 0;
    return ask != nullptr && ask(&value, which, device) == 0 ? value : 0;
  }

  Library library_;
  bool library_loaded_ = false, started_ = false;
};

class Nvml {
 public:
  Nvml() : library_("libnvidia-ml.so.1") {
    const auto init = library_.find<int()>("nvmlInit_v2");
    started_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (const auto stop = library_.find<int()>("nvmlShutdown"); started_ && stop != nullptr) stop();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] std::string driver() const {
    const auto version = library_.find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    Text buffer{};
    if (!started_ || version == nullptr || version(buffer.data(), kNameBytes - 1) != 0) return {};
    return buffer.data();
  }
  /// Finds the GPU by bus address, because NVML numbers GPUs in another order than CUDA.
  void add_to(Gpu& gpu) const {
    const auto find = library_.find<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    void* device = nullptr;
    if (!started_ || find == nullptr || gpu.pci.empty() || find(gpu.pci.c_str(), &device) != 0) return;
    constexpr double kMilli = 1e-3;
    gpu.power_limit_w = kMilli * number(device, "nvmlDeviceGetPowerManagementLimit");
    gpu.pcie_generation = static_cast<int>(number(device, "nvmlDeviceGetMaxPcieLinkGeneration"));
    gpu.pcie_width = static_cast<int>(number(device, "nvmlDeviceGetMaxPcieLinkWidth"));
    const auto uuid = library_.find<int(void*, char*, unsigned)>("nvmlDeviceGetUUID");
    if (Text buffer{}; uuid != nullptr && uuid(device, buffer.data(), kNameBytes - 1) == 0) gpu.uuid = buffer.data();
    gpu.nvlinks = links(device);
  }

 private:
  [[nodiscard]] unsigned number(void* device, const char* symbol) const {
    const auto ask = library_.find<int(void*, unsigned*)>(symbol);
    unsigned value = 0;
    return ask != nullptr && ask(device, &value) == 0 ? value : 0;
  }
  /// Number of links that are up.
  [[nodiscard]] int links(void* device) const {
    constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
    const auto state = library_.find<int(void*, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState");
    int up = 0;
    for (unsigned link = 0; state != nullptr && link < kMostLinks; ++link)
      if (unsigned active = 0; state(device, link, &active) == 0 && active == 1) ++up;
    return up;
  }

  Library library_;
  bool started_ = false;
};

}  // namespace

GpuReport find_gpus() {
  const Cuda cuda;
  GpuReport report;
  report.cuda_driver = cuda.version();
  const int count = cuda.devices();
  if (count == 0) report.reason = cuda.why_not();
  const Nvml nvml;
  report.nvml_driver = nvml.driver();
  for (int i = 0; i < count; ++i) {
    report.gpus.push_back(cuda.describe(i));
    nvml.add_to(report.gpus.back());
  }
  return report;
}

}  // namespace orrery::exec
