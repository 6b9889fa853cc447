// Places of whole matrices, and the shares of the work on them.
#include "plan/outline/whole_matrices.h"

#include <algorithm>

#include "base/ensure.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

namespace {

void add_matrix(WholeMatrices& out, const models::Tensor& tensor, std::int64_t offset) {
  const std::int64_t rows = tensor.logical_shape.at(0), columns = tensor.logical_shape.at(1);
  const auto ways = [&](std::size_t axis) {
    ENSURE(tensor.logical_shape[axis] % tensor.shape[axis] == 0, "{}: {} rows or columns in parts of {}", tensor.name,
           tensor.logical_shape[axis], tensor.shape[axis]);
    return static_cast<std::int32_t>(tensor.logical_shape[axis] / tensor.shape[axis]);
  };
  out.matrices.push_back({offset, tensor.elements(), rows, columns, ways(0), ways(1)});
}

}  // namespace

bool moves_whole(OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor) {
  return traits_of(optimizer).whole_matrices() && layer == models::LayerKind::block && tensor.decay &&
         tensor.logical_shape.size() == 2 && tensor.logical_shape[0] > 1 && tensor.logical_shape[1] > 1;
}

std::vector<models::TensorId> parameter_order(const models::LayerProgram& program, OptimizerKind optimizer) {
  std::vector<models::TensorId> order;
  for (const models::TensorId i : program.tensors.keys()) order.push_back(i);
  const auto place = [&](models::TensorId i) {
    const models::Tensor& t = program.tensors[i];
    if (t.role != models::TensorRole::parameter) return 4;
    return (t.partial_gradient ? 0 : 2) + (moves_whole(optimizer, program.kind, t) ? 1 : 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](models::TensorId a, models::TensorId b) { return place(a) < place(b); });
  return order;
}

void add_parameter(WholeMatrices& out, OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor,
                   std::int64_t offset) {
  const auto add = [&](const models::Tensor& piece) {
    if (moves_whole(optimizer, layer, piece))
      add_matrix(out, piece, offset);
    else
      out.rest = offset + piece.elements();
    offset += piece.elements();
  };
  if (tensor.pieces.empty()) add(tensor);
  for (const models::Tensor& piece : tensor.pieces) add(piece);
}

WholeMatrices whole_matrices(const Bucket& bucket) {
  WholeMatrices out;
  for (const ParameterRange& range : bucket.ranges)
    if (range.orthogonal)
      add_matrix(out, range.tensor, range.offset);
    else
      out.rest = range.offset + range.elements;
  return out;
}

std::int64_t second_moment_elements(const WholeMatrices& bucket, std::int64_t optimized) {
  return bucket.matrices.empty() ? optimized : std::min(bucket.rest, optimized);
}

std::vector<models::Op> newton_schulz(const WholeMatrices& bucket, std::int64_t shard, int shards) {
  std::vector<models::Op> out;
  for (const WholeMatrix& matrix : bucket.matrices) {
    models::Op op;
    op.kind = models::OpKind::newton_schulz;
    op.m = matrix.rows;
    op.n = matrix.columns;
    op.parts = {matrix.offset, shard, shards, matrix.row_ways, matrix.column_ways};
    out.push_back(std::move(op));
  }
  std::vector<double> work(static_cast<std::size_t>(shards), 0);
  const auto each_shard = [&](const WholeMatrix& matrix, const auto& take) {
    for (std::int64_t s = matrix.offset / shard; s <= (matrix.offset + matrix.elements - 1) / shard; ++s)
      take(static_cast<std::size_t>(s));
  };
  for (std::size_t i = 0; i < out.size(); ++i)
    each_shard(bucket.matrices[i], [&](std::size_t s) { work[s] += models::flops_of(out[i]); });
  const auto most = static_cast<std::size_t>(std::max_element(work.begin(), work.end()) - work.begin());
  for (std::size_t i = 0; i < out.size(); ++i) {
    bool met = false;
    each_shard(bucket.matrices[i], [&](std::size_t s) { met = met || s == most; });
    out[i].expected = met ? 1 : 0;
  }
  return out;
}

std::int64_t newton_schulz_workspace(const WholeMatrices& bucket) {
  std::int64_t most = 0;
  for (const WholeMatrix& matrix : bucket.matrices) {
    const std::int64_t shorter = std::min(matrix.rows, matrix.columns);
    most = std::max(most, 2 * matrix.rows * matrix.columns + 2 * shorter * shorter);
  }
  return most;
}

}  // namespace orrery::plan
