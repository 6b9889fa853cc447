// Element-wise sums and maxima by element type.
#include "exec/engine/reduce.h"

#include <algorithm>
#include <array>
#include <span>

#include "exec/engine/half.h"
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

constexpr std::int64_t kAtOnce = 256;

void reduce_16(std::byte* into, const std::byte* from, std::int64_t elements, models::DType dtype,
               plan::Reduce reduce) {
  std::array<float, kAtOnce> sums{};
  for (std::int64_t at = 0; at < elements; at += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, elements - at);
    const std::span<float> some(sums.data(), static_cast<std::size_t>(count));
    widen(dtype, into + 2 * at, some);
    reduce_wide(sums.data(), from + 2 * at, count, dtype, reduce);
    narrow(dtype, some, into + 2 * at);
  }
}

}  // namespace

void reduce_wide(float* into, const std::byte* from, std::int64_t elements, models::DType dtype, plan::Reduce reduce) {
  std::array<float, kAtOnce> wide{};
  for (std::int64_t at = 0; at < elements; at += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, elements - at);
    widen(dtype, from + 2 * at, {wide.data(), static_cast<std::size_t>(count)});
    float* const sums = into + at;
    for (std::int64_t i = 0; i < count; ++i) {
      const float one = wide[static_cast<std::size_t>(i)];
      sums[i] = reduce == plan::Reduce::sum ? sums[i] + one : std::max(sums[i], one);
    }
  }
}

void reduce_into(std::byte* into, const std::byte* from, std::int64_t elements, models::DType dtype,
                 plan::Reduce reduce) {
  switch (dtype) {
    case models::DType::fp32: return reduce_as<float>(into, from, elements, reduce);
    case models::DType::int32: return reduce_as<std::int32_t>(into, from, elements, reduce);
    case models::DType::int64: return reduce_as<std::int64_t>(into, from, elements, reduce);
    case models::DType::bf16:
    case models::DType::fp16: return reduce_16(into, from, elements, dtype, reduce);
    case models::DType::tf32:
    case models::DType::uint8:
    case models::DType::fp4:
    case models::DType::fp8: break;
  }
  throw Failure(std::string("no reduction of ") + models::name_of(dtype) + " on this transport",
                FailureKind::environment);
}

}  // namespace orrery::exec
