// Sizes and places of P, Q and the error.
#include "plan/outline/low_rank.h"

#include <algorithm>

#include "plan/outline/factors.h"

namespace orrery::plan {

MatrixShape matrix_of(const models::Tensor& tensor) {
  if (tensor.shape.size() != 2) return {tensor.elements(), 1};
  return {tensor.shape[0], tensor.shape[1]};
}

std::int64_t rank_of(const MatrixShape& matrix, const Compression& compression) {
  const std::int64_t rank = std::min<std::int64_t>({compression.rank, matrix.rows, matrix.columns});
  const auto sent = static_cast<double>((matrix.rows + matrix.columns) * rank);
  const auto whole = static_cast<double>(matrix.rows * matrix.columns);
  return matrix.columns > 1 && sent * compression.minimum_rate < whole ? rank : 0;
}

LowRankSizes place_matrix(LowRankSizes& sizes, const MatrixShape& matrix, const Compression& compression) {
  const auto take = [](std::int64_t& sum, std::int64_t elements) {
    const std::int64_t begin = sum;
    sum += round_up(elements, kParameterAlignment);
    return begin;
  };
  const std::int64_t rank = rank_of(matrix, compression), elements = matrix.rows * matrix.columns;
  if (rank == 0) return {-1, -1, -1, take(sizes.rest, elements)};
  return {take(sizes.error, elements), take(sizes.p, matrix.rows * rank), take(sizes.q, matrix.columns * rank), -1};
}

LowRankSizes low_rank_sizes(const std::vector<MatrixShape>* matrices, const Compression& compression) {
  LowRankSizes sizes;
  if (matrices != nullptr)
    for (const MatrixShape& matrix : *matrices) (void)place_matrix(sizes, matrix, compression);
  return sizes;
}

LowRankSizes place_low_rank(Bucket& bucket, const Compression& compression) {
  LowRankSizes sizes;
  for (ParameterRange& range : bucket.ranges) {
    const LowRankSizes at = place_matrix(sizes, matrix_of(range.tensor), compression);
    range.error = at.error;
    range.low_rank_p = at.p;
    range.low_rank_q = at.q;
  }
  return sizes;
}

}  // namespace orrery::plan
