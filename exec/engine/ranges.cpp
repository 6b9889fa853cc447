// ParameterRange to ElementRange, clipped to a part of the bucket.
#include "exec/engine/ranges.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "exec/engine/logical.h"

namespace orrery::exec {
namespace {

/// What whole-tensor optimizers need to know about a parameter.
void describe(ElementRange& out, const plan::ParameterRange& range, int tensor_ways) {
  const models::Tensor& t = range.tensor;
  out.norms = range.norms;
  out.share = range.replicated ? 1.0 / tensor_ways : 1.0;
  out.factor_sum = range.factor_sum;
  out.factor_rows = range.factor_rows;
  out.factor_columns = range.factor_columns;
  out.columns = range.factor_rows >= 0 ? t.shape[1] : 0;
  out.all_rows = out.columns > 0 ? t.logical_shape[0] : logical_elements(t);
  out.all_columns = out.columns > 0 ? t.logical_shape[1] : 1;
  out.stream = base::stream_of(range.name);
}

/// Muon: a matrix with more rows (outputs) than columns moves further, so that its update has the same effect (Jordan
/// et al. 2024).
double orthogonal_scale(const models::Tensor& matrix) {
  const double rows = static_cast<double>(matrix.logical_shape.at(0)),
               columns = static_cast<double>(matrix.logical_shape.at(1));
  return std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

std::vector<ElementRange> element_ranges(const plan::Bucket& bucket, std::int64_t begin, std::int64_t elements,
                                         int tensor_ways, int tensor_rank, RangeGrain grain) {
  std::vector<ElementRange> out;
  for (const plan::ParameterRange& range : bucket.ranges) {
    const std::int64_t low = std::max(range.offset, begin);
    const std::int64_t high = std::min(range.offset + range.elements, begin + elements);
    if (low >= high) continue;
    const double weight = !range.counts_in_norm ? 0.0 : range.replicated ? 1.0 / tensor_ways : 1.0;
    ElementRange next{low - begin, high - begin, range.decay, weight};
    if (range.orthogonal) next.orthogonal = orthogonal_scale(range.tensor);
    if (grain == RangeGrain::treatment) {
      if (!out.empty() && out.back().end == next.begin && out.back().decay == next.decay &&
          out.back().norm_weight == next.norm_weight && out.back().orthogonal == next.orthogonal)
        out.back().end = next.end;
      else
        out.push_back(next);
      continue;
    }
    describe(next, range, tensor_ways);
    next.first = low - range.offset;
    if (grain == RangeGrain::parameter) {
      out.push_back(next);
      continue;
    }
    for (const Run& run : runs_of(range.tensor, tensor_rank, low - range.offset, high - range.offset)) {
      next.begin = run.local + range.offset - begin;
      next.end = next.begin + run.elements;
      next.first = run.local;
      next.logical = run.logical;
      out.push_back(next);
    }
  }
  if (out.empty()) out.push_back({0, 0, false, 0});  // all padding; an empty list would mean everything
  return out;
}

}  // namespace orrery::exec
