// Element-wise sums and maxima by element type.
#include "exec/engine/reduce.h"

#include <algorithm>
#include <array>

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

void reduce_16(std::byte* into, const std::byte* from, std::int64_t elements, models::DType dtype,
               plan::Reduce reduce) {
  constexpr std::int64_t kAtOnce = 256;
  std::array<float, kAtOnce> a{}, b{};
  for (std::int64_t at = 0; at < elements; at += kAtOnce) {
    const auto count = static_cast<std::size_t>(std::min(kAtOnce, elements - at));
    widen(dtype, into + 2 * at, {a.data(), count});
    widen(dtype, from + 2 * at, {b.data(), count});
    for (std::size_t i = 0; i < count; ++i) a[i] = reduce == plan::Reduce::sum ? a[i] + b[i] : std::max(a[i], b[i]);
    narrow(dtype, {a.data(), count}, into + 2 * at);
  }
}

}  // namespace

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
    case models::DType::fp8: break;
  }
  throw Failure(std::string("no reduction of ") + models::name_of(dtype) + " on this transport",
                FailureKind::environment);
}

}  // namespace orrery::exec
