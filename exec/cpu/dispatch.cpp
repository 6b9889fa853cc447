// Chooses the table of kernels for this CPU.
#include "exec/cpu/dispatch.h"

#include "exec/cpu/blas_core.h"

namespace orrery::exec {

// Defined in exec/cpu/simd/table.cpp, compiled once per level; CMake decides which levels exist.
namespace simd::baseline {
const Kernels& table();
}
#ifdef ORRERY_SIMD_X86
namespace simd::avx2 {
const Kernels& table();
}
namespace simd::avx512 {
const Kernels& table();
}
#endif

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> all = {&simd::baseline::table()};
#ifdef ORRERY_SIMD_X86
  const CpuFeatures features = cpu_features();
  if (features.avx2) all.push_back(&simd::avx2::table());
  if (features.avx512) all.push_back(&simd::avx512::table());
#endif
  return all;
}

const Kernels& best_kernels() {
  return *runnable_kernels().back();
}

}  // namespace orrery::exec
