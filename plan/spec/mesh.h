#pragma once
/// Mesh: how many ranks there are, and what each dimension splits. Rank order: tensor fastest, then context, data,
/// pipeline: rank = ((stage * data + replica) * context + part) * tensor + shard. A layer's experts are divided among
/// `expert` neighbouring groups of `expert_tensor` ranks, as Megatron-Core folds them.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "plan/spec/ids.h"

namespace orrery::plan {

struct Mesh {
  int data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1;
  /// Neighbouring ranks that split an expert's matrices; 0: as many as `tensor` (Megatron-Core's expert tensor
  /// parallelism, folded over the attention's mesh). If they are not the tensor group, each routes its own rows, and
  /// they gather one another's.
  int expert_tensor = 0;
  /// Norms and residuals are split by rows over the tensor group (Korthikanti et al. 2022, section 4.2.2).
  bool sequence_parallel = false;
  bool operator==(const Mesh&) const = default;

  /// Product of two degrees, clamped to the largest int.
  [[nodiscard]] static int product(int a, int b) {
    constexpr int kMost = std::numeric_limits<int>::max();
    return static_cast<int>(std::min<std::int64_t>(kMost, std::int64_t{a} * b));
  }
  /// An unchecked plan may have any degrees: products beyond what any cluster has are clamped.
  [[nodiscard]] int ranks() const { return product(replicas(), product(tensor, pipeline)); }
  [[nodiscard]] int ranks_per_stage() const { return data * context * tensor; }
  [[nodiscard]] base::Ids<StageId> stages() const { return base::Ids<StageId>(pipeline); }
  [[nodiscard]] StageId last_stage() const { return StageId(pipeline - 1); }
  /// Ranks that hold the same parameters and sum their gradients: those of data and of context parallelism.
  [[nodiscard]] int replicas() const { return product(data, context); }
  /// Whether norms and residuals hold only a part of the rows: a rank without a tensor group has all of them.
  [[nodiscard]] bool shards_rows() const { return sequence_parallel && tensor > 1; }

  /// Ranks that split an expert's matrices, and whether these are not the tensor group.
  [[nodiscard]] int expert_ways() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  [[nodiscard]] bool routes_own_rows() const { return expert_ways() != tensor; }
  /// Whether experts' parameters have other replicas than the rest.
  [[nodiscard]] bool folds_experts() const { return expert > 1 || routes_own_rows(); }
  /// Such groups of ranks in a stage: they differ in their experts, or in the tokens these see.
  [[nodiscard]] int expert_places() const { return ranks_per_stage() / expert_ways(); }
  /// Shards of experts' parameters: every `expert`-th of the groups above has the same experts.
  [[nodiscard]] int expert_shards() const { return expert_places() / expert; }
  /// Which part of a layer's experts a rank has.
  [[nodiscard]] int expert_index(int rank) const { return rank / expert_ways() % expert_places() % expert; }
};

}  // namespace orrery::plan
