#pragma once
/// Optimizers that derive a matrix's update from the whole matrix (Muon): which matrices these are, where they are in
/// their buckets, and which rank works on which. A bucket holds everything else first. Only that has a second moment,
/// which is therefore a shorter buffer with the same start, in a shard too.
///
/// Each rank has a piece of a bucket's directions: its tensor part, and its shard of that. An all-gather gives every
/// rank all pieces, those of tensor ranks next to each other. A rank works on the matrices that its own piece overlaps,
/// and keeps its piece.
#include <cstdint>
#include <vector>

#include "models/expand.h"
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

/// Whether a parameter of such a layer, or a single piece of a fused one, moves whole: matrices of blocks do.
[[nodiscard]] bool moves_whole(OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor);
/// A layer's tensors, parameters first, in the order in which buckets hold them: first what the tensor group sums, so
/// that it is one run, then the rest; within each, whole matrices come last.
[[nodiscard]] std::vector<std::size_t> parameter_order(const models::LayerProgram& program, OptimizerKind optimizer);

/// Adds a parameter of the layer, which begins at `offset` of its bucket.
void add_parameter(WholeMatrices& out, OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor,
                   std::int64_t offset);
[[nodiscard]] WholeMatrices whole_matrices(const Bucket& bucket);

/// Elements of the second moment if a rank optimizes `optimized` elements of the bucket.
[[nodiscard]] std::int64_t second_moment_elements(const WholeMatrices& bucket, std::int64_t optimized);
/// What a rank computes on them: one operator each, without operands. For a bucket in several shards, the matrices that
/// the shard with the most work is expected to overlap.
[[nodiscard]] std::vector<models::Op> newton_schulz(const WholeMatrices& bucket, std::int64_t shard, int shards);
/// Elements of workspace for the largest of them: the matrix twice, and twice the square of its shorter side.
[[nodiscard]] std::int64_t newton_schulz_workspace(const WholeMatrices& bucket);

}  // namespace orrery::plan
