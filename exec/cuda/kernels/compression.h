#pragma once
/// Kernels of compression (plan/lower/compress.h, plan/lower/encode.h), over flat vectors of any floating type, the
/// same type for a whole launch: rounding, sums of pieces, PowerSGD's orthonormal columns and error, Gist's formats.
#include "exec/cuda/kernels/updates.h"

namespace orrery::exec::cuda {

void convert(cudaStream_t stream, const Floats& x, const Floats& y, int64_t count);
/// y = the sum of `pieces` of `count` elements each, in fp32 and in their order; added to y with `accumulate`.
void sum_pieces(cudaStream_t stream, const Floats& from, const Floats& y, int64_t count, int64_t pieces,
                bool accumulate);
/// y += scale x
void add_scaled(cudaStream_t stream, const Floats& x, const Floats& y, int64_t count, float scale);
/// Makes the columns of x (rows, columns) orthonormal, in one block, because PowerSGD's matrices have few columns. A
/// column in the span of those before it becomes the first unit vector outside that span.
void orthogonalise(cudaStream_t stream, float* x, int64_t rows, int64_t columns);
/// To codes of 8, 10 or 16 bits, in the formats of models/encoding.h.
void encode(cudaStream_t stream, const Floats& x, void* codes, int64_t count, int64_t bits);
void decode(cudaStream_t stream, const void* codes, const Floats& y, int64_t count, int64_t bits);

}  // namespace orrery::exec::cuda
