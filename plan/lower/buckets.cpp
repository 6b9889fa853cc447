// Lays the parameters of a stage out in flat buckets.
#include "plan/lower/buckets.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "plan/lower/lower.h"
#include "plan/lower/repeated_modules.h"
#include "plan/outline/outline.h"
#include "plan/outline/whole_matrices.h"

namespace orrery::plan {

namespace {

class Layout {
 public:
  Layout(const Plan& plan, StageId stage, const LowerOptions& options, const SomeLayers* some)
      : plan_(plan),
        stage_(stage),
        some_(some),
        operators_(options.recompute_operators),
        shares_(options.shares_programs),
        options_(expand_options(plan.spec())),
        alignment_(parameter_alignment(plan.spec().states.optimizer)) {
    options_.dropout = !options.forward_only;
  }

  StageParameters build() {
    const PlanSpec& spec = plan_.spec();
    for (chunk_ = 0; chunk_ < spec.stages.virtual_stages; ++chunk_) {
      if (some_ != nullptr && !some_->chunks[static_cast<std::size_t>(chunk_)]) continue;
      if (spec.begins(stage_, chunk_)) add(models::LayerKind::embedding);
      for (const std::int64_t i : blocks())
        add(models::LayerKind::block, LayerId(plan_.first_layer(stage_, chunk_) + i), spec.recompute_of(i, operators_));
      if (spec.ends(stage_, chunk_)) add(models::LayerKind::head);
    }
    for (Bucket& bucket : result_.buckets) {
      bucket.shards = spec.shards_of(bucket.experts);
      bucket.elements = round_up(bucket.elements, bucket.shards * alignment_);
    }
    result_.factors = place_factors(result_.buckets, spec.states.optimizer, spec.mesh.folds_experts());
    return std::move(result_);
  }

 private:
  std::vector<std::int64_t> blocks() const {
    if (some_ != nullptr) return some_->blocks[static_cast<std::size_t>(chunk_)];
    std::vector<std::int64_t> all(static_cast<std::size_t>(plan_.chunk_layers(stage_, chunk_)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  /// `columns`: with those that a repeated operator reads (keep_columns).
  std::shared_ptr<const models::LayerProgram> expanded(models::LayerKind kind, LayerId layer, bool columns) {
    const models::BlockVariant block =
        kind == models::LayerKind::block ? plan_.model().variant(layer.number()) : models::BlockVariant{};
    for (const Expanded& known : expanded_)
      if (known.kind == kind && known.block == block && known.columns == columns) return known.program;
    auto made = std::make_shared<models::LayerProgram>(models::expand(plan_.model(), kind, layer.written(), options_));
    if (columns) keep_columns(*made);
    if (shares_) expanded_.push_back({kind, block, columns, made});
    return made;
  }

  void add(models::LayerKind kind, LayerId layer = {}, const Repeats& repeats = {}) {
    StageLayer stage_layer{.kind = kind,
                           .layer = layer,
                           .chunk = chunk_,
                           .repeats = repeats,
                           .program = expanded(kind, layer, repeats.operators)};
    const auto& tensors = stage_layer.program->tensors;
    stage_layer.bucket.resize(tensors.size());
    stage_layer.offset.assign(tensors.size(), 0);
    BucketId own, of_experts, frozen, of_frozen_experts;
    for (const models::TensorId i : parameter_order(*stage_layer.program, plan_.spec().states.optimizer)) {
      if (tensors[i].role == models::TensorRole::parameter) {
        const bool expert = tensors[i].expert >= 0, stays = tensors[i].frozen;
        BucketId& target = tensors[i].shared ? result_.shared
                           : expert          ? (stays ? of_frozen_experts : of_experts)
                                             : (stays ? frozen : own);
        const bool fresh = !target;
        if (fresh) {
          const std::string of = name(kind, layer) + (expert ? ".experts" : "") + (stays ? ".frozen" : "");
          target = result_.buckets.append({.name = tensors[i].shared ? "wte" : of});
          result_.buckets.back().embedding = tensors[i].shared || kind == models::LayerKind::embedding;
          result_.buckets.back().experts = expert;
          result_.buckets.back().frozen = stays;
        }
        stage_layer.bucket[i] = target;
        stage_layer.offset[i] = tensors[i].shared && !fresh ? 0 : append(target, kind, tensors[i]);
        use(stage_layer, target);
      } else if (tensors[i].role == models::TensorRole::gradient) {
        const models::TensorId of = tensors[i].of;
        stage_layer.bucket[i] = stage_layer.bucket[of];
        stage_layer.offset[i] = stage_layer.offset[of];
      }
    }
    result_.layers.push_back(std::move(stage_layer));
  }

  static void use(StageLayer& layer, BucketId bucket) {
    for (BucketId known : layer.buckets)
      if (known == bucket) return;
    layer.buckets.push_back(bucket);
  }

  std::int64_t append(BucketId id, models::LayerKind kind, const models::Tensor& tensor) {
    Bucket& bucket = result_.buckets[id];
    const std::int64_t start = round_up(bucket.elements, alignment_);
    // The first stage's copy of the table counts in the norm, and the first copy of a mirrored model.
    const bool copy = (tensor.shared && stage_ != kFirstStage) || (plan_.spec().stages.mirrors() && chunk_ > 0);
    std::int64_t offset = start;
    const auto range = [&](const models::Tensor& piece) {
      bucket.ranges.push_back({.name = piece.name,
                               .offset = offset,
                               .elements = piece.elements(),
                               .decay = piece.decay,
                               .counts_in_norm = !copy,
                               .replicated = piece.split_axis < 0,
                               .orthogonal = moves_whole(plan_.spec().states.optimizer, kind, piece),
                               .tensor = piece});
      offset += piece.elements();
    };
    if (tensor.pieces.empty()) range(tensor);
    for (const models::Tensor& piece : tensor.pieces) range(piece);
    bucket.elements = offset;
    if (tensor.partial_gradient && !tensor.frozen) bucket.partial_elements = offset;
    return start;
  }

  static std::string name(models::LayerKind kind, LayerId layer) {
    switch (kind) {
      case models::LayerKind::embedding: return "embedding";
      case models::LayerKind::block: return fmt::format("h.{}", layer);
      case models::LayerKind::head: return "head";
    }
    return "?";
  }

  const Plan& plan_;
  StageId stage_;
  const SomeLayers* some_;
  int chunk_ = 0;
  bool operators_, shares_;
  models::ExpandOptions options_;
  struct Expanded {
    models::LayerKind kind{};
    models::BlockVariant block;
    bool columns = false;
    std::shared_ptr<const models::LayerProgram> program;
  };
  std::vector<Expanded> expanded_;  ///< to be shared
  std::int64_t alignment_;
  StageParameters result_;
};

}  // namespace

models::ExpandOptions expand_options(const PlanSpec& spec) {
  const models::DType kept = compute_dtype(spec.numerics.precision);
  return {.batch = spec.shape.micro_batch,
          .sequence = spec.tokens_per_rank(),
          .context = spec.mesh.context,
          .tensor = spec.mesh.tensor,
          .dtype = kept,
          .flash = spec.numerics.flash,
          .products = kept == spec.numerics.precision ? models::DType::fp32 : spec.numerics.precision,
          .sequence_parallel = spec.mesh.shards_rows(),
          .vocab_multiple = spec.numerics.vocab_multiple,
          .global_tokens = spec.shape.batch * spec.shape.sequence,
          .expert = spec.mesh.expert,
          .expert_bound = spec.tokens.bound,
          .expert_ways = spec.mesh.expert_ways(),
          .imbalance = spec.tokens.imbalance,
          .dispatch = spec.tokens.dispatch,
          .combine = spec.tokens.combine,
          .loss_chunks = spec.numerics.loss_chunks,
          // Backward follows at once, and no other rank has a part of the logits.
          .loss_at_once = spec.mesh.pipeline == 1 && spec.mesh.tensor == 1};
}

StageParameters stage_parameters(const Plan& plan, StageId stage) {
  return stage_parameters(plan, stage, {});
}
StageParameters stage_parameters(const Plan& plan, StageId stage, const LowerOptions& options, const SomeLayers* some) {
  return Layout(plan, stage, options, some).build();
}

}  // namespace orrery::plan
