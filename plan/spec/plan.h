#pragma once
/// Plan: how a model is split over a cluster, checked to fit both. A PlanSpec is unchecked, as read from a file or
/// proposed by the search; only make_plan makes a Plan. Rank order: tensor fastest, then context, data,
/// pipeline: rank = ((stage * data + replica) * context + part) * tensor + shard. A layer's experts are divided among
/// `expert` neighbouring ranks of data x context, as Megatron-Core folds them.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "models/model.h"
#include "plan/spec/job.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

struct PlanSpec {
  int data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1;
  int virtual_stages = 1;  ///< chunks of layers on each rank, run interleaved (Narayanan et al. 2021, section 2.2.2)
  /// Number of blocks of each stage, in model order; with virtual stages, of each chunk: entry place_of(s, c) is chunk
  /// c of rank s. Empty = as even as possible.
  std::vector<std::int64_t> layers_per_stage;
  bool ends_as_layers = false;   ///< an even split counts embedding and head as layers: end stages have fewer blocks
  std::int64_t micro_batch = 1;  ///< B: sequences per micro-batch and replica
  Order order = Order::one_f_one_b;
  PassOrder passes;  ///< of a custom order; otherwise empty
  int zero_stage = 0;
  /// ZeRO: this many neighbouring replicas partition the states, and each such sub-group has a copy of its own
  /// (MiCS, Zhang et al. 2022, section 3.2; HYBRID_SHARD of PyTorch's FSDP). 0: all replicas, without copies.
  int zero_group = 0;
  /// full: a block keeps only its input. selective: an attention that would keep its (B,H,T,T) probabilities drops them
  /// and recomputes QK^T to PV in backward (Korthikanti et al. 2022, section 5); a flash kernel does so by itself, so
  /// selective means none with `flash` (as in Megatron-LM, which does not checkpoint a flash core).
  Recompute recompute = Recompute::none;
  std::int64_t recompute_layers = -1;  ///< how many of each stage's blocks, from its first, are recomputed; -1: all
  /// While a recomputed block's input waits for backward, each rank of the tensor group keeps a part of it, and they
  /// gather it before they recompute (P_a of ZeRO-R, Rajbhandari et al. 2020, section 6.1). Rows that are divided
  /// already (sequence_parallel) need no such thing.
  bool partition_checkpoints = false;
  bool sequence_parallel = false;  ///< norms and residuals split by rows over the tensor group (same paper, 4.2.2)
  bool flash = true;               ///< attention keeps row statistics; context parallelism needs them
  Offload offload;                 ///< what lives outside the device's memory
  /// Gradients are reduced during the last micro-batch's backward pass, each layer's as soon as they are complete
  /// (ZeRO 0 and 1; ZeRO 2 and 3 reduce there anyway, and then sum over the copies of their sub-groups).
  bool overlap_gradients = false;
  Compression compression;
  std::int64_t vocab_multiple = 128;
  std::int64_t batch = 1;     ///< sequences per step over all ranks
  std::int64_t sequence = 1;  ///< T
  models::DType precision = models::DType::fp32;
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< the job's: its states and update steps are part of the schedule
  bool momentum = true;                            ///< sgd: whether it has momentum
  Rounding rounding = Rounding::nearest;
  /// Asynchronous data parallelism with a parameter server (plan/lower/parameter_server.h): the weights from which a
  /// worker computes gradients are this many steps old; 0: they include all updates of the step before. -1:
  /// synchronous.
  int staleness = -1;
  /// The head computes logits for this many equal parts of a micro-batch's rows in turn, and each part's gradients
  /// before the next part (models/loss_chunks.h); 1: all rows at once.
  std::int64_t loss_chunks = 1;
  Embedding embedding;  ///< of a recommendation model
  /// Ranks that split an expert's matrices: those of `tensor` (0), or none (1): experts are then whole and take the
  /// rank's own rows of tokens (Megatron-Core's expert tensor parallelism of 1, folded over the attention's mesh).
  int expert_tensor = 0;
  /// In a message of tokens a rank has room for this many times the rows that a balanced router sends it.
  double expert_bound = 2;
  /// Tokens of the fullest rank over the mean, as predictions assume it; in a run the data decides.
  double expert_imbalance = 1;
  Tokens tokens;  ///< of a mixture of experts
  bool operator==(const PlanSpec&) const = default;
  /// Product of two degrees, clamped to the largest int.
  [[nodiscard]] static int product(int a, int b) {
    constexpr int kMost = std::numeric_limits<int>::max();
    return static_cast<int>(std::min<std::int64_t>(kMost, std::int64_t{a} * b));
  }
  /// Number of states with one value per parameter that the optimizer keeps.
  [[nodiscard]] int moments() const {
    return optimizer == OptimizerKind::sgd && !momentum ? 0 : traits_of(optimizer).moments;
  }
  /// Whether norms and residuals hold only a part of the rows: a rank without a tensor group has all of them.
  [[nodiscard]] bool shards_rows() const { return sequence_parallel && tensor > 1; }
  /// Whether a backward pass is split in two, gradients of inputs and of weights (the zero-bubble orders, DualPipe, and
  /// custom orders, which may run the two back to back).
  [[nodiscard]] bool splits_backward() const {
    return order == Order::zb_h1 || order == Order::zb_h2 || order == Order::custom || folds();
  }
  /// Whether a rank's second chunk runs up the stages: the model is folded into a V, so that the first stage has both
  /// its ends, or the stages hold it twice (mirrors()).
  [[nodiscard]] bool folds() const {
    return order == Order::zb_v || order == Order::dualpipe_v || mirrors() ||
           (order == Order::custom && passes.folds());
  }
  /// Whether the stages hold the model twice, down with the first chunk and up with the second, and half of the
  /// micro-batches enter at either end: stages s and pipeline - 1 - s hold the same parameters.
  [[nodiscard]] bool mirrors() const { return order == Order::dualpipe; }
  /// Stages of the model in its own order: the number of entries of layers_per_stage.
  [[nodiscard]] int places() const { return mirrors() ? pipeline : pipeline * virtual_stages; }
  /// Whether the pipeline never drains: gradients come from older weights than those they update.
  [[nodiscard]] bool asynchronous() const {
    return order == Order::pipedream || order == Order::pipedream_vertical || order == Order::pipedream_2bw;
  }
  /// Whether replicas are workers that push their gradients to a parameter server, which applies them one by one.
  [[nodiscard]] bool has_server() const { return staleness >= 0; }
  /// Position of a chunk in the model's order of virtual stages: each chunk runs down the stages, or, folded into a V,
  /// the first runs down and the second up, so that one rank has both ends of the model. Where the model is held
  /// twice, the second copy's places follow the first's.
  [[nodiscard]] int place_of(int stage, int chunk) const {
    return folds() && chunk == 1 ? 2 * pipeline - 1 - stage : chunk * pipeline + stage;
  }
  [[nodiscard]] int stage_at(int place) const {
    return folds() && place >= pipeline ? 2 * pipeline - 1 - place : place % pipeline;
  }
  [[nodiscard]] bool begins(int stage, int chunk) const { return place_of(stage, chunk) % places() == 0; }
  [[nodiscard]] bool ends(int stage, int chunk) const { return (place_of(stage, chunk) + 1) % places() == 0; }
  /// Whether a chunk's result, forward or backward, goes to another rank.
  [[nodiscard]] bool sends(int stage, int chunk, bool forward) const {
    if (forward ? ends(stage, chunk) : begins(stage, chunk)) return false;
    return stage_at(place_of(stage, chunk) + (forward ? 1 : -1)) != stage;
  }
  /// Whether a chunk's input comes from another rank.
  [[nodiscard]] bool receives(int stage, int chunk, bool forward) const { return sends(stage, chunk, !forward); }
  [[nodiscard]] int head_stage() const { return stage_at(pipeline * virtual_stages - 1); }
  /// Which recomputation the block at `place` of its stage gets.
  [[nodiscard]] Recompute recompute_of(std::int64_t place) const {
    if (recompute_layers >= 0 && place >= recompute_layers) return Recompute::none;
    return recompute == Recompute::selective && flash ? Recompute::none : recompute;
  }
  /// An unchecked plan may have any degrees: products beyond what any cluster has are clamped.
  [[nodiscard]] int ranks() const { return product(replicas(), product(tensor, pipeline)); }
  /// Ranks that hold the same parameters and sum their gradients: those of data and of context parallelism.
  [[nodiscard]] int replicas() const { return product(data, context); }
  /// Ranks over which ZeRO partitions a parameter's states: one sub-group of the replicas.
  [[nodiscard]] int shards() const { return zero_group > 0 ? zero_group : replicas(); }
  /// Whether experts are whole though other matrices are split over a tensor group.
  [[nodiscard]] bool whole_experts() const { return expert_tensor == 1 && tensor > 1; }
  /// Distance between the ranks of a stage that differ in their experts, or in the tokens these see, and the number
  /// of such ranks.
  [[nodiscard]] int expert_stride() const { return whole_experts() ? 1 : tensor; }
  [[nodiscard]] int expert_places() const { return ranks_per_stage() / expert_stride(); }
  /// Shards of experts' parameters: of these ranks, every `expert`-th has the same experts.
  [[nodiscard]] int expert_shards() const { return expert_places() / expert; }
  [[nodiscard]] int shards_of(bool experts) const { return experts && folds_experts() ? expert_shards() : shards(); }
  /// Whether experts' parameters have other replicas than the rest.
  [[nodiscard]] bool folds_experts() const { return expert > 1 || whole_experts(); }
  /// Which part of a layer's experts a rank has.
  [[nodiscard]] int expert_index(int rank) const { return rank / expert_stride() % expert_places() % expert; }
  [[nodiscard]] int sub_groups() const { return replicas() / shards(); }
  /// Which shard a rank has in its sub-group. Where gradients are exchanged by node, the shards of a node's ranks are
  /// shards() / group apart: what a rank has summed within its node is then one piece, and so is what its
  /// counterparts on all nodes gather.
  [[nodiscard]] int shard_index(int rank) const {
    const int place = rank / tensor % shards(), group = compression.group;
    return exchanges_by_node() ? place % group * (shards() / group) + place / group : place;
  }
  [[nodiscard]] int expert_shard_index(int rank) const { return rank / expert_stride() % expert_places() / expert; }
  [[nodiscard]] int shard_index_of(bool experts, int rank) const {
    return experts && folds_experts() ? expert_shard_index(rank) : shard_index(rank);
  }
  [[nodiscard]] int sub_group_of(int rank) const { return rank / tensor % replicas() / shards(); }
  /// Ranks that hold the same shard or, without ZeRO, the same parameters: they sum among them what each has reduced
  /// within its own sub-group.
  [[nodiscard]] int copies() const { return sub_groups() * (mirrors() ? 2 : 1); }
  /// Whether gradients are reduced during the last backward pass instead of after it.
  [[nodiscard]] bool reduces_early() const {
    return overlap_gradients && replicas() * copies() > 1 && (zero_stage <= 1 || copies() > 1) && !asynchronous() &&
           offload.optimizer == Space::device;
  }
  /// Whether gradients travel in fewer bits, and whether they do so as matrices of low rank (PowerSGD).
  [[nodiscard]] bool compresses() const { return compression.gradients != GradientCompression::none && replicas() > 1; }
  [[nodiscard]] bool low_rank() const { return compresses() && compression.gradients == GradientCompression::powersgd; }
  /// Whether gradients are summed within groups of replicas before they travel between groups in 16 bits.
  [[nodiscard]] bool exchanges_by_node() const { return compresses() && !low_rank() && compression.group > 1; }
  /// First steps of a run, before PowerSGD begins, that reduce gradients whole.
  [[nodiscard]] std::int64_t plain_steps() const { return low_rank() ? compression.start : 0; }
  [[nodiscard]] int ranks_per_stage() const { return data * context * tensor; }
  /// Tokens of each sequence that a rank has (context parallelism).
  [[nodiscard]] std::int64_t tokens_per_rank() const { return sequence / context; }
};

class Plan {
 public:
  [[nodiscard]] const PlanSpec& spec() const { return spec_; }
  [[nodiscard]] const models::Model& model() const { return *model_; }
  [[nodiscard]] const clusters::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] std::int64_t micro_batches() const;  ///< m, per replica and step
  /// Index of the first block of a stage's chunk.
  [[nodiscard]] std::int64_t first_layer(int stage, int chunk = 0) const;
  [[nodiscard]] std::int64_t chunk_layers(int stage, int chunk) const {
    return spec_.layers_per_stage[static_cast<std::size_t>(spec_.place_of(stage, chunk) % spec_.places())];
  }
  [[nodiscard]] std::int64_t layers(int stage) const;  ///< of all chunks
  [[nodiscard]] int rank(int stage, int replica, int shard, int part = 0) const {
    return ((stage * spec_.data + replica) * spec_.context + part) * spec_.tensor + shard;
  }
  [[nodiscard]] int stage_of(int rank) const { return rank / spec_.ranks_per_stage(); }
  [[nodiscard]] int replica_of(int rank) const { return rank / (spec_.context * spec_.tensor) % spec_.data; }
  /// A rank's part of its sequences: chunks `part` and 2 context - 1 - part of 2 context.
  [[nodiscard]] int part_of(int rank) const { return rank / spec_.tensor % spec_.context; }
  [[nodiscard]] int shard_of(int rank) const { return rank % spec_.tensor; }

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
