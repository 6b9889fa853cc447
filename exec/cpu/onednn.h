#pragma once
/// Matrix products by oneDNN, where the machine has it. Its kernels are generated for the core at hand, of which the
/// OpenBLAS of a distribution may know nothing: on a Zen 4 core products of GPT-2's shapes run a tenth faster. Opened
/// at run time, so that nothing needs it; the environment variable ORRERY_PRODUCTS=cblas leaves it aside.
#include <cstdint>
#include <string>

namespace orrery::exec {

/// oneDNN's version, as "2.6.3"; empty where it is not there or not wanted.
[[nodiscard]] std::string onednn_version();

/// As `gemm` (exec/cpu/gemm.h), in the calling thread. False, and nothing done, where oneDNN is not to be used.
[[nodiscard]] bool onednn_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                               const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                               std::int64_t ldc);

}  // namespace orrery::exec
