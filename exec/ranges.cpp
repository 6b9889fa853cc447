// ParameterRange to ElementRange, clipped to a part of the bucket.
#include "exec/ranges.h"

#include <algorithm>

namespace orrery::exec {

std::vector<ElementRange> element_ranges(const plan::Bucket& bucket, std::int64_t begin, std::int64_t elements,
                                         int tensor_ways) {
  std::vector<ElementRange> out;
  for (const plan::ParameterRange& range : bucket.ranges) {
    const std::int64_t low = std::max(range.offset, begin);
    const std::int64_t high = std::min(range.offset + range.elements, begin + elements);
    if (low >= high) continue;
    const double weight = !range.counts_in_norm ? 0.0 : range.replicated ? 1.0 / tensor_ways : 1.0;
    const ElementRange next{low - begin, high - begin, range.decay, weight};
    if (!out.empty() && out.back().end == next.begin && out.back().decay == next.decay &&
        out.back().norm_weight == next.norm_weight)
      out.back().end = next.end;
    else
      out.push_back(next);
  }
  if (out.empty()) out.push_back({0, 0, false, 0});  // all padding; no range at all would mean all of it
  return out;
}

}  // namespace orrery::exec
