// Finds and opens the CUDA module; see cuda_loader.h.
#include "exec/engine/cuda_loader.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstdlib>

namespace orrery::exec {
namespace {

struct Opened {
  void* library = nullptr;
  std::string path;
  std::string error;
};

Opened open_library(const std::string& path) {
  Opened opened;
  opened.path = path;
  // NODELETE: the module's objects and exceptions may outlive the code that loaded it.
  opened.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!opened.library) {
    const char* why = dlerror();
    opened.error = why ? why : "unknown error";
  }
  return opened;
}

/// The first library that opens. If a file exists but does not open (cuBLAS missing, say), that is the reason to
/// report, rather than a later "not found".
Opened find_library(const std::vector<std::string>& folders) {
  Opened failed;
  for (const std::string& folder : folders) {
    Opened opened = open_library(folder + "/" + kCudaModuleFile);
    if (opened.library) return opened;
    const bool absent =
        opened.error.find("No such file") != std::string::npos && opened.error.find(opened.path) != std::string::npos;
    if (!absent && failed.error.empty()) failed = std::move(opened);
  }
  Opened opened = open_library(kCudaModuleFile);
  if (opened.library || failed.error.empty()) return opened;
  return failed;
}

}  // namespace

CudaLoad load_cuda(const std::vector<std::string>& folders) {
  CudaLoad load;
  const Opened opened = find_library(folders);
  if (!opened.library) {
    load.reason = fmt::format("the CUDA module {} could not be loaded: {}", kCudaModuleFile, opened.error);
    return load;
  }
  load.path = opened.path;
  void* symbol = dlsym(opened.library, kCudaModuleEntry);
  if (!symbol) {
    load.reason = fmt::format("{} is not an Orrery CUDA module: it has no {}", opened.path, kCudaModuleEntry);
    return load;
  }
  std::array<char, 512> reason{};
  const auto entry = reinterpret_cast<CudaModuleEntry>(symbol);
  load.module.reset(entry(kCudaModuleVersion, reason.data(), reason.size()));
  if (!load.module) load.reason = reason.data();
  return load;
}

std::vector<std::pair<std::string, std::string>> shared_gpu_environment(int rank) {
  return {{"NCCL_HOSTID", fmt::format("orrery-rank-{}", rank)},
          {"NCCL_NET", "Socket"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_SOCKET_FAMILY", "AF_INET"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_NET_PLUGIN", "none"},
          {"NCCL_TUNER_PLUGIN", "none"},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_SHM_DISABLE", "1"},
          {"NCCL_NVLS_ENABLE", "0"},
          {"NCCL_MNNVL_ENABLE", "0"},
          {"NCCL_PXN_DISABLE", "1"},
          {"NCCL_CUMEM_ENABLE", "0"},
          {"NCCL_CUMEM_HOST_ENABLE", "0"},
          {"NCCL_GIN_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_MAX_NCHANNELS", "2"},
          {"NCCL_MAX_CTAS", "2"},
          {"NCCL_BUFFSIZE", "1048576"},
          {"NCCL_ALGO", "Ring"},
          {"NCCL_PROTO", "Simple"}};
}

void apply_environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), name == "NCCL_HOSTID" ? 1 : 0);
}

}  // namespace orrery::exec
