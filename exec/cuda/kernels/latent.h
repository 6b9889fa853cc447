#pragma once
/// Kernels of latent attention (models/operators/op.h has their operands).
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// Heads of `width` columns, of which `turned` rotate; a value has `value` columns.
struct LatentShape {
  int64_t rows = 0, heads = 0, width = 0, turned = 0, value = 0;
};
template <class T>
void latent_pack(cudaStream_t stream, const LatentShape& shape, const T* q, const T* kv, const T* key, T* qkv);
template <class T>
void latent_pack_grad(cudaStream_t stream, const LatentShape& shape, const T* dqkv, T* dq, T* dkv, T* dkey);

}  // namespace orrery::exec::cuda
