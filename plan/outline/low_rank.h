#pragma once
/// PowerSGD's matrices (Vogels, Karimireddy, Jaggi 2019): which parameters travel as P and Q, how large these are, and
/// where they stand.
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A parameter as a tensor rank has it: rows x columns of values; anything but a matrix is one column.
struct MatrixShape {
  std::int64_t rows = 0, columns = 1;
  bool operator==(const MatrixShape&) const = default;
};
[[nodiscard]] MatrixShape matrix_of(const models::Tensor& tensor);

/// Columns of the matrix's P and Q. 0: it travels whole, because it is no matrix or because P and Q would save too
/// little.
[[nodiscard]] std::int64_t rank_of(const MatrixShape& matrix, const Compression& compression);

/// Sums over the parameters of a bucket, each padded to kParameterAlignment: values of the error, of P, of Q, and of
/// the parameters that travel whole.
struct LowRankSizes {
  std::int64_t error = 0, p = 0, q = 0, rest = 0;
};
/// Counts a parameter in. Returns where its parts begin: -1 for a part that it does not have, and for `rest` if it is
/// compressed.
LowRankSizes place_matrix(LowRankSizes& sizes, const MatrixShape& matrix, const Compression& compression);

/// The sums over all `matrices`; nullptr: none.
[[nodiscard]] LowRankSizes low_rank_sizes(const std::vector<MatrixShape>* matrices, const Compression& compression);

/// Gives the ranges of a bucket their places.
LowRankSizes place_low_rank(Bucket& bucket, const Compression& compression);

}  // namespace orrery::plan
