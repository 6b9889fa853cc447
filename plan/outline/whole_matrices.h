#pragma once
/// Optimizers that derive a matrix's update from the whole matrix (Muon): which matrices these are, where they are in
/// their buckets, and which rank works on which. A bucket holds everything else first. Only everything else has a
/// second moment, whose buffer is therefore shorter, with the same start, in a shard too.
///
/// Each rank has a piece of a bucket's directions: its shard of its tensor part. An all-gather gives every rank all
/// pieces, with those of tensor ranks next to each other. A rank works on the matrices that overlap its own piece, and
/// keeps its piece of the result.
#include <cstdint>
#include <vector>

#include "models/layers/expand.h"
#include "plan/spec/optimizers.h"

namespace orrery::plan {

struct Bucket;

/// A matrix; each tensor rank's part has `elements`, starting at `offset` of its bucket.
struct WholeMatrix {
  std::int64_t offset = 0, elements = 0;
  std::int64_t rows = 0, columns = 0;  ///< of all parts together
  std::int32_t row_ways = 1, column_ways = 1;
};
struct WholeMatrices {
  std::vector<WholeMatrix> matrices;
  std::int64_t rest = 0;  ///< elements of the bucket before its whole matrices
};

/// Whether the optimizer updates this parameter (or single piece of a fused one) as a whole matrix: it does for
/// matrices of blocks that weight decay applies to.
[[nodiscard]] bool moves_whole(OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor);
/// A layer's tensors, parameters first, in the order in which buckets hold them: first the parameters whose gradients
/// the tensor group sums, so that they are one run, then the rest; within each, whole matrices come last.
[[nodiscard]] std::vector<models::TensorId> parameter_order(const models::LayerProgram& program,
                                                            OptimizerKind optimizer);

/// Adds a parameter of the layer, which begins at `offset` of its bucket.
void add_parameter(WholeMatrices& out, OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor,
                   std::int64_t offset);
[[nodiscard]] WholeMatrices whole_matrices(const Bucket& bucket);

/// Elements of the second moment if a rank optimizes `optimized` elements of the bucket.
[[nodiscard]] std::int64_t second_moment_elements(const WholeMatrices& bucket, std::int64_t optimized);
/// What a rank computes on them: one operator for each matrix, without operands. For a bucket in several shards, these
/// are the matrices that the shard with the most work is expected to overlap.
[[nodiscard]] std::vector<models::Op> newton_schulz(const WholeMatrices& bucket, std::int64_t shard, int shards);
/// Elements of workspace for the largest of them: the matrix twice, and twice the square of its shorter side.
[[nodiscard]] std::int64_t newton_schulz_workspace(const WholeMatrices& bucket);

}  // namespace orrery::plan
