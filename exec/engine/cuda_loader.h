#pragma once
/// Opens the CUDA module (liborrery_cuda.so) at run time, so that every binary starts without CUDA. Needs no CUDA
/// header: the module returns a Backend and a Transport behind exec's own interfaces.
///
///   exec::CudaLoad cuda = exec::load_cuda(folder_of_this_executable);
///   if (!cuda.module) -> cuda.reason says why in one sentence (exit code 6 when the user asked for CUDA)
///   auto backend = cuda.module->make_backend(cuda.module->device_for(local_rank),
///                                           exec::make_cpu_backend(threads), {});
///   auto transport = cuda.module->make_transport(*backend, host_transport, {});
///
/// The host transport (MPI) must outlive the one made here. It serves barrier, gather_text and maximum, carries the ids
/// by which NCCL's communicators find each other, and runs the collectives itself, through pinned memory, where NCCL
/// cannot.
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
  /// Same inputs, same bits. If false, the backward pass of attention may sum in the order in which its blocks end,
  /// which is faster.
  bool repeat = true;
};

struct CudaTransportOptions {
  bool nccl = true;             ///< false: always stage through the host
  double start_timeout_s = 60;  ///< for the ranks to find each other; after it, all stage through the host
  double deadline_s = 120;      ///< per operation; after it, communicators are aborted and Failure is thrown
  /// Called once when a communicator has failed or an operation has passed its deadline, by the thread that saw it,
  /// before the communicators are aborted: aborting may block, and delay the Failure.
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
  /// The GPU for the process numbered `local_rank` on its machine; ranks share GPUs if there are fewer.
  [[nodiscard]] int device_for(int local_rank) const { return local_rank % devices(); }
  /// `host` computes what plans leave to the host's cores; may be null if no plan does.
  [[nodiscard]] virtual std::unique_ptr<Backend> make_backend(int device, std::unique_ptr<Backend> host,
                                                              const CudaBackendOptions& options) const = 0;
  /// Collective over all ranks of `host`. `backend` must come from this module's make_backend and outlive the result.
  [[nodiscard]] virtual std::unique_ptr<Transport> make_transport(Backend& backend, Transport& host,
                                                                  const CudaTransportOptions& options) const = 0;
};

/// A module that found a usable GPU, or the reason why there is none.
struct CudaLoad {
  std::unique_ptr<CudaModule> module;
  std::string reason;
  std::string path;  ///< of the module that answered; empty if none was found
};

/// Looks for the module in `folders` in order, then by name along the loader's own search path. The library stays
/// mapped until the process ends.
[[nodiscard]] CudaLoad load_cuda(const std::vector<std::string>& folders);

/// The module's only entry point: returns a module, or null with the reason in `reason`. `version` rejects a module of
/// another build.
inline constexpr int kCudaModuleVersion = 6;
inline constexpr const char* kCudaModuleFile = "liborrery_cuda.so";
inline constexpr const char* kCudaModuleEntry = "orrery_cuda_open";
using CudaModuleEntry = CudaModule* (*)(int version, char* reason, std::size_t reason_bytes);

/// NCCL settings for rank `rank` if several ranks share one GPU. Each rank appears as a host of its own, because NCCL
/// refuses two ranks of one host on one device (NCCL 2.28.9 src/init.cc:903, src/misc/utils.cc:76); few channels, so
/// that all ranks' kernels fit; sockets over the loopback. Set them before the first NCCL call; one process per rank.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> shared_gpu_environment(int rank);
/// Sets the variables that this process does not have yet, and NCCL_HOSTID in any case.
void apply_environment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace orrery::exec
