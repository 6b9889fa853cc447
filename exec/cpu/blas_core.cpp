// Finds out which kernels OpenBLAS chose, and makes it choose better ones.
#include "exec/cpu/blas_core.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

// Weak: another BLAS lacks this function, and then there is nothing to choose.
extern "C" char* openblas_get_corename() __attribute__((weak));

namespace orrery::exec {
namespace {

constexpr const char* core_variable = "OPENBLAS_CORETYPE";
constexpr const char* threads_variable = "OPENBLAS_NUM_THREADS";
constexpr const char* guard_variable = "ORRERY_BLAS_CORE_CHOSEN";

constexpr std::array<std::string_view, 4> avx512_cores = {"SkylakeX", "Cooperlake", "SapphireRapids", "Zen"};
constexpr std::array<std::string_view, 6> avx2_cores = {"Haswell",  "Zen",        "Excavator",
                                                        "SkylakeX", "Cooperlake", "SapphireRapids"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view each) {
    return each.size() == name.size() &&
           std::equal(each.begin(), each.end(), name.begin(), [](char a, char b) { return (a | 0x20) == (b | 0x20); });
  });
}

}  // namespace

CpuFeatures cpu_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return {avx2, avx512};
#else
  return {};
#endif
}

std::string blas_core() {
  if (openblas_get_corename == nullptr) return {};
  const char* name = openblas_get_corename();
  return name == nullptr ? std::string() : std::string(name);
}

std::optional<std::string> better_blas_core(std::string_view core, CpuFeatures features) {
  if (core.empty()) return std::nullopt;
  // "Zen" is also accepted with AVX-512: OpenBLAS chooses it on purpose for cores that split 512-bit operations.
  if (features.avx512) return contains(avx512_cores, core) ? std::nullopt : std::optional<std::string>("SkylakeX");
  if (features.avx2) return contains(avx2_cores, core) ? std::nullopt : std::optional<std::string>("Haswell");
  return std::nullopt;
}

std::optional<std::string> better_blas_core() {
  if (std::getenv(core_variable) != nullptr) return std::nullopt;
  return better_blas_core(blas_core(), cpu_features());
}

void execute_again_with_better_blas_core(char** argv) {
  if (std::getenv(guard_variable) != nullptr) return;
  const std::optional<std::string> core = better_blas_core();
  if (!core) return;
  setenv(guard_variable, "1", 1);
  setenv(core_variable, core->c_str(), 1);
  setenv(threads_variable, "1", 0);
  execv("/proc/self/exe", argv);
}

}  // namespace orrery::exec
