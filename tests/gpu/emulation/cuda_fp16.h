#pragma once
/// IEEE 754 binary16 as CUDA names it, converted by the host's own code (exec/engine/half.h).
#include <cuda_runtime.h>

#include "exec/engine/half.h"

struct __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) {
  return orrery::exec::from_fp16(value.bits);
}
inline __half __float2half_rn(float value) {
  return {orrery::exec::to_fp16(value)};
}
