// Each capability is one small function: it looks, and says what to do if the capability is missing.
#include "exec/probe/capabilities.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/units.h"
#include "exec/probe/library.h"
#include "exec/probe/memory.h"

namespace orrery::exec {
namespace {
namespace fs = std::filesystem;

constexpr const char* kInstall = "scripts/install-packages demo";

/// The value on the first line "name : value" of /proc/cpuinfo.
std::string cpu_info(const std::string& name) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(name, 0) == 0)
      if (const auto colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
  return {};
}

fs::path in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Capability program(const std::string& name, const std::vector<std::string>& names, const std::string& remedy) {
  for (const std::string& candidate : names)
    if (const fs::path path = in_path(candidate); !path.empty()) return {name, Presence::ok, path.string(), {}};
  return {name, Presence::missing, names.front() + " is not in PATH", remedy};
}

Capability cores() {
  const int count = usable_cores();
  const std::string detail = fmt::format("{} usable, {}", count, cpu_info("model name"));
  if (count >= 2) return {"cores", Presence::ok, detail, {}};
  return {"cores", Presence::degraded, detail, "two ranks share one core here, so times are not fit for calibration"};
}

Capability memory() {
  return {"memory", Presence::ok, base::human(base::Bytes{memory_here().bytes}), {}};
}

Capability blas() {
  const Library library("libopenblas.so.0");
  if (!library.loaded()) return {"blas", Presence::missing, "libopenblas.so.0 does not load", kInstall};
  const auto corename = library.find<char*()>("openblas_get_corename");
  if (corename == nullptr) return {"blas", Presence::degraded, "an OpenBLAS without a core name", {}};
  const std::string name = corename();
  if (blas_kernel_is_too_old(name, cpu_info("flags")))
    return {"blas", Presence::degraded, fmt::format("OpenBLAS chose the kernel {} for this processor", name),
            "the worker chooses a newer one with OPENBLAS_CORETYPE; other programs do not"};
  return {"blas", Presence::ok, fmt::format("OpenBLAS, kernel {}", name), {}};
}

Capability onednn() {
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"})
    if (const Library library(name); library.loaded()) return {"onednn", Presence::ok, name, {}};
  return {"onednn", Presence::missing, "libdnnl.so.2 does not load",
          "without it OpenBLAS computes all products, on some processors a tenth slower: " + std::string(kInstall)};
}

Capability cuda_driver() {
  const Library library("libcuda.so.1");
  if (!library.loaded())
    return {"cuda-driver", Presence::missing, "libcuda.so.1 does not load", "only needed to train on a GPU"};
  const auto init = library.find<int(unsigned)>("cuInit");
  const auto count_of = library.find<int(int*)>("cuDeviceGetCount");
  int count = 0;
  if (init == nullptr || count_of == nullptr || init(0) != 0 || count_of(&count) != 0 || count == 0)
    return {"cuda-driver", Presence::missing, "the driver loads, but no GPU answers", "only needed to train on a GPU"};
  return {"cuda-driver", Presence::ok, base::count_of(count, "GPU"), {}};
}

Capability cuda_toolkit() {
  for (const fs::path& path : {in_path("nvcc"), fs::path("/usr/local/cuda/bin/nvcc")})
    if (!path.empty() && ::access(path.c_str(), X_OK) == 0) return {"cuda-toolkit", Presence::ok, path.string(), {}};
  return {"cuda-toolkit", Presence::missing, "no nvcc", "only needed to build the CUDA module"};
}

Capability worker(const fs::path& folder) {
  const fs::path path = folder / "orrery-worker";
  if (::access(path.c_str(), X_OK) == 0) return {"worker", Presence::ok, path.string(), {}};
  return {"worker", Presence::missing, path.string() + " does not exist",
          "install MPI and BLAS (scripts/install-packages demo) and build again"};
}

Capability vega() {
  const fs::path path = "/usr/share/javascript/vega/vega-view.min.js";
  if (::access(path.c_str(), R_OK) == 0) return {"vega", Presence::ok, path.string(), {}};
  return {"vega", Presence::missing, path.string() + " does not exist", kInstall};
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

MemoryHere memory_here(const std::filesystem::path& root) {
  const double total = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return memory_here(total, "the kernel", root);
}

MemoryHere memory_here(double total_bytes, const std::string& source, const std::filesystem::path& root) {
  for (const char* file : {"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(root / file);
    double limit = 0;  // "max" is not a number and means no limit
    if (in >> limit && limit > 0 && limit < total_bytes) return {limit, std::string("/") + file};
  }
  return {total_bytes, source};
}

bool blas_kernel_is_too_old(const std::string& corename, const std::string& cpu_flags) {
  const bool has_avx2 = (" " + cpu_flags + " ").find(" avx2 ") != std::string::npos;
  for (const char* old : {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Generic", "Katmai", "Coppermine",
                          "Northwood", "Banias", "Opteron", "Barcelona", "Bobcat"})
    if (corename == old) return has_avx2;
  return false;
}

const char* name_of(Presence presence) {
  switch (presence) {
    case Presence::ok: return "ok";
    case Presence::degraded: return "degraded";
    case Presence::missing: return "missing";
  }
  return "?";
}

std::vector<Capability> probe_capabilities(const fs::path& program_folder) {
  return {cores(),
          memory(),
          program("mpi", {"mpiexec.hydra", "mpiexec"}, kInstall),
          worker(program_folder),
          blas(),
          onednn(),
          cuda_toolkit(),
          cuda_driver(),
          vega(),
          program("chromium", {"chromium", "google-chrome"},
                  "only needed to test reports: scripts/install-packages tests")};
}

}  // namespace orrery::exec
