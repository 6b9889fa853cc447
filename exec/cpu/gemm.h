#pragma once
/// Matrix products, row-major: by oneDNN if available and if the product is large, else by CBLAS.
#include <cstdint>

namespace orrery::exec {

/// C (m,n) = alpha op(A) op(B) + beta C in the calling thread, with leading dimensions; op transposes if trans_a,
/// trans_b say so.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

}  // namespace orrery::exec
