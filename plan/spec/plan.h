#pragma once
/// Plan: how a model is split over a cluster, checked to fit both. A PlanSpec is unchecked, as read from a file or
/// proposed by the search; only make_plan makes a Plan.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "clusters/cluster.h"
#include "models/model.h"
#include "plan/spec/job.h"
#include "plan/spec/mesh.h"
#include "plan/spec/parts.h"
#include "plan/spec/stages.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

/// Where a stage's ranks hold one kind of parameters: those of a layer's experts, where these are divided among other
/// ranks than the rest, or all others. Ranks are counted within the stage.
struct Holders {
  int ways = 1;    ///< neighbouring ranks that have parts of each matrix
  int stride = 1;  ///< distance between the ranks that hold the same
  int count = 1;   ///< of these ranks
  int shards = 1;  ///< consecutive ones of these among which ZeRO partitions states: a sub-group
  int near = 1;    ///< consecutive ones that sum in full before gradients travel in 16 bits; 1: none
  [[nodiscard]] int sub_groups() const { return count / shards; }
  /// Which of the ranks that hold the same `rank` is, and which part of matrices it has.
  [[nodiscard]] int replica(int rank) const { return rank / stride % count; }
  [[nodiscard]] int part(int rank) const { return rank % ways; }
  /// Which shard a rank has in its sub-group. Where gradients are exchanged by node, the shards of a node's ranks are
  /// shards / near apart: what a rank has summed within its node is then one piece, and so is what its counterparts on
  /// all nodes gather.
  [[nodiscard]] int shard(int rank) const {
    const int place = replica(rank) % shards;
    return near > 1 ? place % near * (shards / near) + place / near : place;
  }
  [[nodiscard]] int sub_group(int rank) const { return replica(rank) / shards; }
};

/// What is chosen for a run: its parts, and what follows from more than one of them.
struct PlanSpec {
  Mesh mesh;
  Stages stages;
  Shape shape;
  States states;
  Recomputation recomputation;
  Offload offload;  ///< what lives outside the device's memory
  Compression compression;
  Numerics numerics;
  Embedding embedding;  ///< of a recommendation model
  Tokens tokens;        ///< of a mixture of experts
  bool operator==(const PlanSpec&) const = default;

  /// Stages of the model in its own order: the number of entries of layers_per_stage.
  [[nodiscard]] int places() const { return stages.mirrors() ? mesh.pipeline : mesh.pipeline * stages.virtual_stages; }
  /// Position of a chunk in the model's order of virtual stages: each chunk runs down the stages, or, folded into a V,
  /// the first runs down and the second up, so that one rank has both ends of the model. Where the model is held
  /// twice, the second copy's places follow the first's.
  [[nodiscard]] int place_of(StageId stage, int chunk) const {
    return stages.folds() && chunk == 1 ? 2 * mesh.pipeline - 1 - stage.number()
                                        : chunk * mesh.pipeline + stage.number();
  }
  [[nodiscard]] StageId stage_at(int place) const {
    return StageId(stages.folds() && place >= mesh.pipeline ? 2 * mesh.pipeline - 1 - place : place % mesh.pipeline);
  }
  [[nodiscard]] bool begins(StageId stage, int chunk) const { return place_of(stage, chunk) % places() == 0; }
  [[nodiscard]] bool ends(StageId stage, int chunk) const { return (place_of(stage, chunk) + 1) % places() == 0; }
  /// Whether a chunk's result, forward or backward, goes to another rank.
  [[nodiscard]] bool sends(StageId stage, int chunk, bool forward) const {
    if (forward ? ends(stage, chunk) : begins(stage, chunk)) return false;
    return stage_at(place_of(stage, chunk) + (forward ? 1 : -1)) != stage;
  }
  /// Whether a chunk's input comes from another rank.
  [[nodiscard]] bool receives(StageId stage, int chunk, bool forward) const { return sends(stage, chunk, !forward); }
  [[nodiscard]] StageId head_stage() const { return stage_at(mesh.pipeline * stages.virtual_stages - 1); }
  /// Which recomputation the block at `place` of its chunk gets. `operators`: the software repeats by operator where no
  /// modules are named (LowerOptions::recompute_operators).
  [[nodiscard]] Repeats recompute_of(std::int64_t place, bool operators = false) const {
    if (recomputation.layers && place >= *recomputation.layers) return {};
    if (recomputation.what != Recompute::selective) return recomputation.what;
    if (operators && recomputation.modules.empty() && numerics.flash) return Repeats::by_operator();
    const Modules modules = recomputation.modules.empty() ? Modules().with(Module::core) : recomputation.modules;
    return Repeats(numerics.flash ? modules.without(Module::core) : modules);
  }
  /// m: micro-batches per replica and step. Not a whole number where P09 refuses the plan: then rounded down.
  [[nodiscard]] std::int64_t micro_batches() const {
    return shape.batch / std::max<std::int64_t>(1, mesh.data * shape.micro_batch);
  }
  /// Tokens of each sequence that a rank has (context parallelism).
  [[nodiscard]] std::int64_t tokens_per_rank() const { return shape.sequence / mesh.context; }

  /// Ranks over which ZeRO partitions the states of most parameters: one sub-group of the replicas.
  [[nodiscard]] int shards() const { return states.zero_group > 0 ? states.zero_group : mesh.replicas(); }
  [[nodiscard]] int sub_groups() const { return mesh.replicas() / shards(); }
  /// Ranks that hold the same shard or, without ZeRO, the same parameters: they sum among them what each has reduced
  /// within its own sub-group.
  [[nodiscard]] int copies() const { return sub_groups() * (stages.mirrors() ? 2 : 1); }
  /// The ranks of a sub-group, or of a node whose replicas sum first, hold `consecutive` replicas of most parameters.
  /// Of experts that are divided among fewer ranks they hold as many fewer, and of experts divided among more just one.
  [[nodiscard]] Holders holders(bool experts) const {
    const int near = exchanges_by_node() ? compression.group : 1;
    if (!experts || !mesh.folds_experts()) return {mesh.tensor, mesh.tensor, mesh.replicas(), shards(), near};
    const int stride = Mesh::product(mesh.expert_ways(), mesh.expert);
    const auto held_by = [&](int consecutive) { return std::max(1, consecutive * mesh.tensor / stride); };
    return {mesh.expert_ways(), stride, mesh.expert_shards(), held_by(shards()), near > 1 ? held_by(near) : 1};
  }
  /// Whether the ranks that agree on the gradient's norm (a tensor group and, under ZeRO, its sub-group) do not have
  /// all experts' gradients exactly once: then experts' squares are summed apart, over the ranks that divide them.
  [[nodiscard]] bool squares_experts_apart() const {
    const bool partitions = mesh.replicas() > 1 && states.zero_stage > 0;
    return mesh.folds_experts() && (!partitions || squaring_ranks() < holders(true).stride);
  }
  /// Whether these ranks do not have each part of an expert's matrices equally often: then the squares of the parts
  /// are summed apart, too.
  [[nodiscard]] bool squares_parts_apart() const { return squaring_ranks() % mesh.expert_ways() != 0; }
  /// How many of the ranks that agree on the norm have the same sum of experts' squares.
  [[nodiscard]] int times_experts_are_squared() const {
    return squares_parts_apart() ? squaring_ranks() : squaring_ranks() / mesh.expert_ways();
  }
  [[nodiscard]] int shards_of(bool experts) const { return holders(experts).shards; }
  [[nodiscard]] int shard_index(int rank) const { return holders(false).shard(rank); }
  [[nodiscard]] int shard_index_of(bool experts, int rank) const { return holders(experts).shard(rank); }
  [[nodiscard]] int squaring_ranks() const {
    return mesh.tensor * (mesh.replicas() > 1 && states.zero_stage > 0 ? shards() : 1);
  }

  /// Whether gradients are reduced during the last backward pass instead of after it.
  [[nodiscard]] bool reduces_early() const {
    return states.overlap_gradients && mesh.replicas() * copies() > 1 && (states.zero_stage <= 1 || copies() > 1) &&
           !stages.asynchronous() && offload.optimizer == Space::device;
  }
  /// Whether gradients travel in fewer bits, and whether they do so as matrices of low rank (PowerSGD).
  [[nodiscard]] bool compresses() const {
    return compression.gradients != GradientCompression::none && mesh.replicas() > 1;
  }
  [[nodiscard]] bool low_rank() const { return compresses() && compression.gradients == GradientCompression::powersgd; }
  /// Whether gradients are summed within groups of replicas before they travel between groups in 16 bits.
  [[nodiscard]] bool exchanges_by_node() const { return compresses() && !low_rank() && compression.group > 1; }
  /// First steps of a run, before PowerSGD begins, that reduce gradients whole.
  [[nodiscard]] std::int64_t plain_steps() const { return low_rank() ? compression.start : 0; }
};

class Plan {
 public:
  [[nodiscard]] const PlanSpec& spec() const { return spec_; }
  [[nodiscard]] const models::Model& model() const { return *model_; }
  [[nodiscard]] const clusters::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] std::int64_t micro_batches() const { return spec_.micro_batches(); }
  /// Index of the first block of a stage's chunk.
  [[nodiscard]] std::int64_t first_layer(StageId stage, int chunk = 0) const;
  [[nodiscard]] std::int64_t chunk_layers(StageId stage, int chunk) const {
    return spec_.stages.layers_per_stage[static_cast<std::size_t>(spec_.place_of(stage, chunk) % spec_.places())];
  }
  [[nodiscard]] std::int64_t layers(StageId stage) const;  ///< of all chunks
  [[nodiscard]] int rank(StageId stage, int replica, int shard, int part = 0) const {
    return ((stage.number() * spec_.mesh.data + replica) * spec_.mesh.context + part) * spec_.mesh.tensor + shard;
  }
  [[nodiscard]] StageId stage_of(int rank) const { return StageId(rank / spec_.mesh.ranks_per_stage()); }
  [[nodiscard]] int replica_of(int rank) const {
    return rank / (spec_.mesh.context * spec_.mesh.tensor) % spec_.mesh.data;
  }
  /// A rank's part of its sequences: chunks `part` and 2 context - 1 - part of 2 context.
  [[nodiscard]] int part_of(int rank) const { return rank / spec_.mesh.tensor % spec_.mesh.context; }
  [[nodiscard]] int shard_of(int rank) const { return rank % spec_.mesh.tensor; }

 private:
  friend base::Result<Plan> make_plan(std::shared_ptr<const models::Model>, std::shared_ptr<const clusters::Cluster>,
                                      PlanSpec);
  Plan() = default;
  std::shared_ptr<const models::Model> model_;
  std::shared_ptr<const clusters::Cluster> cluster_;
  PlanSpec spec_;
};

/// Checks everything that can be checked without a cost model: the mesh fills the cluster, heads, key/value heads and
/// widths divide by `tensor`, layers cover the stages, the batch divides into micro-batches, the sequence fits the
/// position table, what is not lowered yet is refused by name. Each violated rule is one diagnostic with a stable code
/// (P01 …), so that the search can count reasons. Memory is not checked here; cost/ and the search do that.
[[nodiscard]] base::Result<Plan> make_plan(std::shared_ptr<const models::Model> model,
                                           std::shared_ptr<const clusters::Cluster> cluster, PlanSpec spec);

/// Copies what the schedule depends on in a job's training: the optimizer's states and the steps of its update.
void take_optimizer(PlanSpec& spec, const Training& training);

/// "data 2 x tensor 4 x pipeline 8, 1f1b, micro-batch 1, zero 1, recompute full"
[[nodiscard]] std::string describe(const PlanSpec& spec);

}  // namespace orrery::plan
