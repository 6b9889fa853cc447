#pragma once
/// Turns CUDA's error codes into exec::Failure, and says what was being done.
#include <cuda_runtime.h>

#include <string>

#include "exec/failure.h"

namespace orrery::exec::cuda {

/// Throws Failure if `status` is an error: "CUDA: <doing>: out of memory (cudaErrorMemoryAllocation)".
inline void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw Failure(std::string("CUDA: ") + doing + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
                ")");
}

}  // namespace orrery::exec::cuda
