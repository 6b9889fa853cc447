// The module's only entry point, and what it offers: devices, backends, transports.
#include <cuda_runtime.h>
#include <fmt/core.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "exec/cuda/backend.h"
#include "exec/cuda/cudnn_api.h"
#include "exec/cuda/nccl_transport.h"
#include "exec/engine/cuda_loader.h"

namespace orrery::exec::cuda {
namespace {

std::string dotted(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class Module final : public CudaModule {
 public:
  explicit Module(int devices) : devices_(devices) {}
  [[nodiscard]] int devices() const override { return devices_; }
  [[nodiscard]] std::string device_name(int device) const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
    return properties.name;
  }
  [[nodiscard]] std::string versions() const override {
    int driver = 0, runtime = 0, nccl = 0;
    check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
    check_nccl(ncclGetVersion(&nccl), "asking for NCCL's version");
    std::string why;
    const std::string cudnn = find_cudnn(why) ? "cuDNN" : fmt::format("no cuDNN ({})", why);
    return fmt::format("driver {}, runtime {}, NCCL {}.{}.{}, {}", dotted(driver), dotted(runtime), nccl / 10000,
                       nccl % 10000 / 100, nccl % 100, cudnn);
  }
  [[nodiscard]] std::unique_ptr<Backend> make_backend(int device, std::unique_ptr<Backend> host,
                                                      const CudaBackendOptions& options) const override {
    return std::make_unique<CudaBackend>(device, std::move(host), Products::Options{}, options.repeat);
  }
  [[nodiscard]] std::unique_ptr<Transport> make_transport(Backend& backend, Transport& host,
                                                          const CudaTransportOptions& options) const override {
    auto* cuda_backend = dynamic_cast<CudaBackend*>(&backend);
    if (!cuda_backend) throw Failure("CUDA: a transport for a backend of another kind");
    return make_cuda_transport(*cuda_backend, host, options);
  }

 private:
  int devices_;
};

/// The number of usable devices, or 0 with the reason.
int usable_devices(std::string& reason) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    reason = "no driver: this machine has no NVIDIA driver (cudaDriverGetVersion reports 0)";
    return 0;
  }
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    reason = fmt::format("the NVIDIA driver is too old: it offers CUDA {}, this build needs {}", dotted(driver),
                         dotted(runtime));
    return 0;
  }
  if (status != cudaSuccess || devices == 0) {
    reason = fmt::format("no GPU: {}", status == cudaSuccess ? "the driver lists none" : cudaGetErrorString(status));
    return 0;
  }
  return devices;
}

}  // namespace
}  // namespace orrery::exec::cuda

extern "C" __attribute__((visibility("default"))) orrery::exec::CudaModule* orrery_cuda_open(int version, char* reason,
                                                                                             std::size_t reason_bytes) {
  using namespace orrery::exec;
  const auto refuse = [&](const std::string& why) -> CudaModule* {
    if (reason_bytes > 0) {
      std::strncpy(reason, why.c_str(), reason_bytes - 1);
      reason[reason_bytes - 1] = '\0';
    }
    return nullptr;
  };
  if (version != kCudaModuleVersion)
    return refuse(
        fmt::format("the CUDA module is of another build (interface {}, wanted {})", kCudaModuleVersion, version));
  std::string why;
  const int devices = cuda::usable_devices(why);
  if (devices == 0) return refuse(why);
  return new cuda::Module(devices);
}
