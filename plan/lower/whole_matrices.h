#pragma once
/// Optimizers that move a matrix by what they make of it as a whole (Muon): which matrices these are, where they lie in
/// their buckets, and who works on which. A bucket holds all else first, so that the second moment, which only that
/// has, is a shorter buffer that begins as the others do, of a shard too.
///
/// Of a bucket's directions each rank has a piece: its tensor part, and of that its shard. An all-gather gives every
/// rank all pieces, those of tensor ranks next to each other; a rank works on the matrices that its own piece has
/// something of, and keeps that.
#include <cstdint>
#include <vector>

#include "models/expand.h"
#include "plan/spec/optimizers.h"

namespace orrery::plan {

struct Bucket;

/// A matrix whose part of one tensor rank has `elements` from `offset` of its bucket on.
struct WholeMatrix {
  std::int64_t offset = 0, elements = 0;
  std::int64_t rows = 0, columns = 0;  ///< of all parts together
  std::int32_t row_ways = 1, column_ways = 1;
};
struct WholeMatrices {
  std::vector<WholeMatrix> matrices;
  std::int64_t rest = 0;  ///< elements of the bucket up to the last that is of no such matrix
};

/// Whether a parameter of such a layer, a piece of a fused one by itself, is among them: matrices of blocks are.
[[nodiscard]] bool moves_whole(OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor);
/// The tensors of a layer, parameters first, in the order in which buckets hold them: what the tensor group sums up, so
/// that it is one run, then the rest; of either, what does not move whole before what does.
[[nodiscard]] std::vector<std::size_t> parameter_order(const models::LayerProgram& program, OptimizerKind optimizer);

/// Adds a parameter of the layer that begins at `offset` of its bucket.
void add_parameter(WholeMatrices& out, OptimizerKind optimizer, models::LayerKind layer, const models::Tensor& tensor,
                   std::int64_t offset);
[[nodiscard]] WholeMatrices whole_matrices(const Bucket& bucket);

/// Elements of the second moment, where a rank optimizes `optimized` of the bucket's.
[[nodiscard]] std::int64_t second_moment_elements(const WholeMatrices& bucket, std::int64_t optimized);
/// What a rank computes on them: an operator each, without operands. Of a bucket in several shards those are expected
/// that the shard with the most work has something of.
[[nodiscard]] std::vector<models::Op> newton_schulz(const WholeMatrices& bucket, std::int64_t shard, int shards);
/// Elements of its workspace for the largest of them: the matrix twice, and twice the square of its shorter side.
[[nodiscard]] std::int64_t newton_schulz_workspace(const WholeMatrices& bucket);

}  // namespace orrery::plan
