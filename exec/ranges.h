#pragma once
/// Which elements of an optimizer op's operand belong to which parameter: weight decay and weight in the global norm.
#include <cstdint>
#include <vector>

#include "exec/backend.h"
#include "plan/schedule.h"

namespace orrery::exec {

/// The part [begin, begin + elements) of a bucket, as ranges relative to `begin`; neighbours that are treated alike are
/// joined. Padding between and after parameters belongs to no range: it is zero and stays zero.
/// Never empty: a part that is all padding is one empty range.
[[nodiscard]] std::vector<ElementRange> element_ranges(const plan::Bucket& bucket, std::int64_t begin,
                                                       std::int64_t elements, int tensor_ways);

}  // namespace orrery::exec
