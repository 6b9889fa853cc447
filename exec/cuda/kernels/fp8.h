#pragma once
/// The operands of an fp8 product on the device; models/operators/fp8.h defines them.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "models/operators/fp8.h"

struct __nv_bfloat16;

namespace orrery::exec::cuda {

/// A matrix in bf16, (rows,k), or `transposed` (k,rows); rows and k are multiples of 16, addresses of 16 bytes.
struct ToRound {
  const __nv_bfloat16* from = nullptr;
  std::int64_t rows = 0;
  bool transposed = false;
  models::Fp8 kind = models::Fp8::e4m3;
};
/// Writes `room` as models::Fp8Casts(a.rows, b.rows, k) lays it out. Nothing of it goes through the host.
void round_operands(cudaStream_t stream, const ToRound& a, const ToRound& b, std::int64_t k, std::byte* room);

}  // namespace orrery::exec::cuda
