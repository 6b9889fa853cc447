#pragma once
/// Matrix products by oneDNN, if the machine has it. It generates kernels for the actual core, which a distribution's
/// OpenBLAS may not know: on a Zen 4 core, products of GPT-2's shapes run a tenth faster. Opened at run time, so that
/// nothing depends on it; ORRERY_PRODUCTS=cblas in the environment turns it off.
#include <cstdint>
#include <string>

namespace orrery::exec {

/// oneDNN's version, as "2.6.3"; empty if it is missing or turned off.
[[nodiscard]] std::string onednn_version();

/// Like `gemm` (exec/cpu/gemm.h), in the calling thread. Returns false, having done nothing, if oneDNN is not to be
/// used.
[[nodiscard]] bool onednn_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                               const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                               std::int64_t ldc);

}  // namespace orrery::exec
