#pragma once
/// Gradients of layer norm and RMS norm in one pass over dy and x.
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// Operands of rows of `columns` elements. RMS norm: `mean` and `dbias` are null. `dx` may be dy, x or addend (null:
/// none). `adds`: to what is in dweight and dbias.
template <class T>
struct NormGradient {
  const T* dy;
  const T* x;
  const T* weight;
  const float* mean;
  const float* rstd;
  const T* addend;
  T* dx;
  GradientOf<T>* dweight;
  GradientOf<T>* dbias;
  int64_t rows, columns;
  bool adds;
};

/// dx, and the sums over rows that dweight and dbias are, the same bits each time. False, and nothing is done, where
/// rows are no multiple of 16 bytes or too long to be kept in registers, or where `scratch` has no room for the sums.
template <class T>
[[nodiscard]] bool norm_grad_in_one_pass(cudaStream_t stream, const NormGradient<T>& gradient, KernelScratch scratch,
                                         const char* name);

}  // namespace orrery::exec::cuda
