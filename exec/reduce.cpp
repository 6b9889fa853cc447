// Element-wise sums and maxima by element type.
#include "exec/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "exec/failure.h"

namespace orrery::exec {
namespace {

template <class T>
void reduce_as(std::byte* into, const std::byte* from, std::int64_t elements, plan::Reduce reduce) {
  auto* a = reinterpret_cast<T*>(into);
  const auto* b = reinterpret_cast<const T*>(from);
  if (reduce == plan::Reduce::sum)
    for (std::int64_t i = 0; i < elements; ++i) a[i] = static_cast<T>(a[i] + b[i]);
  else
    for (std::int64_t i = 0; i < elements; ++i) a[i] = std::max(a[i], b[i]);
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

void reduce_bf16(std::byte* into, const std::byte* from, std::int64_t elements, plan::Reduce reduce) {
  auto* a = reinterpret_cast<std::uint16_t*>(into);
  const auto* b = reinterpret_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float x = from_bf16(a[i]);
    const float y = from_bf16(b[i]);
    a[i] = to_bf16(reduce == plan::Reduce::sum ? x + y : std::max(x, y));
  }
}

}  // namespace

void reduce_into(std::byte* into, const std::byte* from, std::int64_t elements, models::DType dtype,
                 plan::Reduce reduce) {
  switch (dtype) {
    case models::DType::fp32: return reduce_as<float>(into, from, elements, reduce);
    case models::DType::int32: return reduce_as<std::int32_t>(into, from, elements, reduce);
    case models::DType::int64: return reduce_as<std::int64_t>(into, from, elements, reduce);
    case models::DType::bf16: return reduce_bf16(into, from, elements, reduce);
    case models::DType::fp16:
    case models::DType::tf32:
    case models::DType::fp8: break;
  }
  throw Failure(std::string("no reduction of ") + models::name_of(dtype) + " on this transport",
                FailureKind::environment);
}

}  // namespace orrery::exec
