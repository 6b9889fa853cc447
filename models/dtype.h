#pragma once
/// Element types of tensors and their sizes.
#include <cstdint>

namespace orrery::models {

/// tf32 is fp32 in memory, rounded on its way into a matrix product. No tensor is fp4: it is what such a product rounds
/// 16 bits to (NVFP4: e2m1, a scale of 8 bits for each 16 values).
enum class DType : std::uint8_t { fp32, bf16, fp16, fp8, int32, int64, tf32, uint8, fp4 };

[[nodiscard]] constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::tf32:
    case DType::fp32: return 4;
    case DType::bf16: return 2;
    case DType::fp16: return 2;
    case DType::fp4:
    case DType::fp8:
    case DType::uint8: return 1;
    case DType::int32: return 4;
    case DType::int64: return 8;
  }
  return 0;
}

[[nodiscard]] constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp16: return "fp16";
    case DType::fp4: return "fp4";
    case DType::fp8: return "fp8";
    case DType::tf32: return "tf32";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
  }
  return "?";
}

}  // namespace orrery::models
