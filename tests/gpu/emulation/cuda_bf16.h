#pragma once
/// bfloat16 as CUDA names it, converted by the host's own code (exec/engine/half.h).
#include <cuda_runtime.h>

#include "exec/engine/half.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return orrery::exec::from_bf16(value.bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {orrery::exec::to_bf16(value)};
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return {bits};
}
