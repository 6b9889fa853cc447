#pragma once
/// The conversion to fp8 as CUDA names it, by the host's own code (models/operators/fp8.h).
#include <cuda_runtime.h>

#include "models/operators/fp8.h"

struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8x2_storage_t = unsigned short;

inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 value, __nv_saturation_t, __nv_fp8_interpretation_t kind) {
  const auto as = kind == __NV_E4M3 ? orrery::models::Fp8::e4m3 : orrery::models::Fp8::e5m2;
  return static_cast<__nv_fp8x2_storage_t>(orrery::models::fp8_code(value.x, as) | orrery::models::fp8_code(value.y, as)
                                                                                       << 8U);
}
