#pragma once
/// Which kernels the BLAS chose. OpenBLAS picks its kernels by the CPU's model number when it is loaded. A release
/// older than the CPU does not know the number and falls back to SSE code ("Prescott": 4 to 5 times slower than
/// AVX-512; OpenBLAS issue 4267, fixed in 0.3.25). OPENBLAS_CORETYPE overrides the choice, but only before the library
/// is loaded, so a process that finds a bad choice sets it and executes itself again.
#include <optional>
#include <string>
#include <string_view>

namespace orrery::exec {

/// Vector instructions that both the CPU and the operating system offer.
struct CpuFeatures {
  bool avx2 = false;    ///< with FMA
  bool avx512 = false;  ///< F, BW, CD, DQ and VL: what "SkylakeX" needs
};
[[nodiscard]] CpuFeatures cpu_features();

/// The core whose kernels OpenBLAS runs ("SkylakeX", "Haswell", "Prescott" ...); empty if the BLAS is another one.
[[nodiscard]] std::string blas_core();

/// The core to use instead of `core` on a CPU with `features`; nothing if the choice is fine.
[[nodiscard]] std::optional<std::string> better_blas_core(std::string_view core, CpuFeatures features);

/// The same for this process. Nothing if the user has set OPENBLAS_CORETYPE.
[[nodiscard]] std::optional<std::string> better_blas_core();

/// Executes this process again with the better core, at most once. Returns if there is nothing to gain, or if executing
/// fails: a slow BLAS still computes. Call it first thing in main, before MPI_Init and before any thread. Also sets
/// OPENBLAS_NUM_THREADS=1, because the CPU backend divides matrix products itself.
void execute_again_with_better_blas_core(char** argv);

}  // namespace orrery::exec
