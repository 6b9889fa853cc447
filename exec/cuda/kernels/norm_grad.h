#pragma once
/// Gradients of layer norm and RMS norm in one pass over dy and x.
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// Operands with rows of `columns` elements. RMS norm: `mean` and `dbias` are null. `dx` may be dy, x or addend (null:
/// none). `adds`: to the contents of dweight and dbias.
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

/// Computes dx, and the sums over rows dweight and dbias, with the same bits each time. False, with nothing done, if
/// rows are not a multiple of 16 bytes, are too long for registers, or if `scratch` has no room for the sums.
template <class T>
[[nodiscard]] bool norm_grad_in_one_pass(cudaStream_t stream, const NormGradient<T>& gradient, KernelScratch scratch,
                                         const char* name);

}  // namespace orrery::exec::cuda
