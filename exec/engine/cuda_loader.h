#pragma once
/// Opens the CUDA module (liborrery_cuda.so) at run time, so that every binary starts where CUDA is absent. No CUDA
/// header is needed here: the module hands out a Backend and a Transport behind exec's own interfaces.
///
///   exec::CudaLoad cuda = exec::load_cuda(folder_of_this_executable);
///   if (!cuda.module) -> cuda.reason says why in one sentence (exit code 6 when the user asked for CUDA)
///   auto backend = cuda.module->make_backend(cuda.module->device_for(local_rank),
///                                           exec::make_cpu_backend(threads), {});
///   auto transport = cuda.module->make_transport(*backend, host_transport, {});
///
/// The host transport (MPI) must outlive the one made here; it serves barrier, gather_text and maximum, carries the ids
/// by which NCCL's communicators meet, and does the collectives itself, through pinned memory, where NCCL cannot.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/engine/backend.h"
#include "exec/engine/transport.h"

namespace orrery::exec {

struct CudaBackendOptions {
  /// The same inputs give the same bits. Without it attention's backward may add up in whatever order its blocks end,
  /// which is faster.
  bool repeat = true;
};

struct CudaTransportOptions {
  bool nccl = true;             ///< false: always staged through the host
  double start_timeout_s = 60;  ///< for the ranks to meet; then all fall back to staging through the host
  double deadline_s = 120;      ///< one operation; then the communicators are aborted and Failure is thrown
  /// Called once where a communicator has failed or an operation has passed its deadline, by whichever thread saw it,
  /// before the communicators are aborted: that may block, and with it the Failure that is thrown.
  std::function<void(const std::string& why)> on_failure = {};
};

/// What the module can do. Calls throw exec::Failure.
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  [[nodiscard]] virtual int devices() const = 0;                        ///< at least 1
  [[nodiscard]] virtual std::string device_name(int device) const = 0;  ///< "NVIDIA H100 80GB HBM3"
  /// "driver 13.0, runtime 13.0, cuBLAS 13.1.0, NCCL 2.28.9"
  [[nodiscard]] virtual std::string versions() const = 0;
  /// The GPU of the process that is number `local_rank` on its machine; ranks share GPUs when there are fewer.
  [[nodiscard]] int device_for(int local_rank) const { return local_rank % devices(); }
  /// `host` computes what plans leave to the host's cores; it may be null where no plan does.
  [[nodiscard]] virtual std::unique_ptr<Backend> make_backend(int device, std::unique_ptr<Backend> host,
                                                              const CudaBackendOptions& options) const = 0;
  /// Collective over all ranks of `host`. `backend` must come from this module's make_backend and outlive the result.
  [[nodiscard]] virtual std::unique_ptr<Transport> make_transport(Backend& backend, Transport& host,
                                                                  const CudaTransportOptions& options) const = 0;
};

/// Either a module that found a usable GPU, or the reason why not.
struct CudaLoad {
  std::unique_ptr<CudaModule> module;
  std::string reason;
  std::string path;  ///< of the module that answered; empty when none was found
};

/// Looks for the module in `folders` in order, then by name through the loader's own search path. The library stays
/// mapped for the life of the process.
[[nodiscard]] CudaLoad load_cuda(const std::vector<std::string>& folders);

/// The module's one entry point: a module, or null with the reason in `reason`. `version` guards against a module
/// left over from another build.
inline constexpr int kCudaModuleVersion = 6;
inline constexpr const char* kCudaModuleFile = "liborrery_cuda.so";
inline constexpr const char* kCudaModuleEntry = "orrery_cuda_open";
using CudaModuleEntry = CudaModule* (*)(int version, char* reason, std::size_t reason_bytes);

/// NCCL settings for rank `rank` when several ranks share one GPU: each rank appears as a host of its own, because NCCL
/// refuses two ranks of one host on one device (NCCL 2.28.9 src/init.cc:903, src/misc/utils.cc:76), few channels so
/// that all ranks' kernels fit, sockets over the loopback. Set before the first NCCL call; one process per rank.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> shared_gpu_environment(int rank);
/// Sets variables of this process that are not set already; NCCL_HOSTID is always set.
void apply_environment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace orrery::exec
