#pragma once
/// The part of cuBLAS that exec/cuda uses, computed plainly on the CPU with cuBLAS's own column-major meaning.
#include <cuda_runtime.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH };

struct EmulatedBlas {
  cudaStream_t stream = nullptr;
};
using cublasHandle_t = EmulatedBlas*;

inline const char* cublasGetStatusString(cublasStatus_t) {
  return "emulated status";
}
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new EmulatedBlas;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline std::size_t cublasGetCudartVersion() {
  return 13000;
}
inline cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                  int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                                  const float* beta, float* c, int ldc) {
  const bool sizes = lda >= (ta == CUBLAS_OP_N ? m : k) && ldb >= (tb == CUBLAS_OP_N ? k : n) && ldc >= m;
  if (!sizes) return CUBLAS_STATUS_INVALID_VALUE;
  emulation::enqueue(handle->stream, [=, scale = *alpha, keep = *beta] {
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int l = 0; l < k; ++l) {
          const double left = ta == CUBLAS_OP_N ? a[i + static_cast<long>(l) * lda] : a[l + static_cast<long>(i) * lda];
          const double right =
              tb == CUBLAS_OP_N ? b[l + static_cast<long>(j) * ldb] : b[j + static_cast<long>(l) * ldb];
          sum += left * right;
        }
        float& out = c[i + static_cast<long>(j) * ldc];
        out = static_cast<float>(scale * sum) + (keep == 0 ? 0.0F : keep * out);
      }
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}
