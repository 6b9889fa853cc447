#pragma once
/// Which elements of an optimizer operator's operand belong to which parameter: weight decay, weight in the global
/// norm, and the fields for optimizers that look at whole tensors.
#include <cstdint>
#include <vector>

#include "exec/engine/backend.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// How finely a bucket is divided.
enum class RangeGrain {
  treatment,  ///< neighbours with the same decay and weight are joined
  parameter,  ///< one range for each parameter
  run,        ///< the same, but cut where elements are not consecutive in the whole parameter
};

/// The part [begin, begin + elements) of a bucket, as ranges relative to `begin`. Padding between and after parameters
/// belongs to no range: it is zero and stays zero. Never empty: a part with nothing but padding is one empty range.
[[nodiscard]] std::vector<ElementRange> element_ranges(const plan::Bucket& bucket, std::int64_t begin,
                                                       std::int64_t elements, int tensor_ways, int tensor_rank = 0,
                                                       RangeGrain grain = RangeGrain::treatment);

}  // namespace orrery::exec
