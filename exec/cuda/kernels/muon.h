#pragma once
/// Kernels of Newton-Schulz beside its products (models/operators/op.h, newton_schulz); those of moments and of the
/// step are in updates.h.
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/kernels/kernels.h"
#include "models/operators/op.h"

namespace orrery::exec::cuda {

/// A tensor rank's part of a matrix, in the pieces of a bucket, and its place in the whole matrix.
struct MatrixPart {
  models::MatrixParts parts;
  int64_t rows = 0, columns = 0;  ///< of the part
  int64_t first_row = 0, first_column = 0;
  int64_t row_stride = 0, column_stride = 0;  ///< of the whole matrix, which may be transposed
};
/// Copies the part of tensor rank `rank` of `ranks` from all pieces into the whole matrix.
void gather_part(cudaStream_t stream, const MatrixPart& part, const float* pieces, int64_t ranks, int64_t rank,
                 float* whole);
/// Copies what piece `own` has of the part from the whole matrix.
void scatter_part(cudaStream_t stream, const MatrixPart& part, const float* whole, int64_t own, float* direction);
/// x /= its norm + `guard`.
void normalise(cudaStream_t stream, float* x, int64_t count, double guard, KernelScratch scratch);
/// y = scale x.
void scale_into(cudaStream_t stream, const float* x, float* y, int64_t count, float scale);

}  // namespace orrery::exec::cuda
