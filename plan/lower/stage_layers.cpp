// Names and places of a stage's layers, and the extra buffers of a mixture of experts.
#include "plan/lower/stage_layers.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "models/layers/inputs.h"
#include "models/operators/operators.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;
using models::TensorRole;

std::string label(const StageLayer& layer) {
  switch (layer.kind) {
    case models::LayerKind::embedding: return "embedding";
    case models::LayerKind::block: return fmt::format("h.{}", layer.layer);
    case models::LayerKind::head: return "head";
  }
  return "?";
}

std::size_t place_of(const StageLayer& layer, BucketId bucket) {
  return static_cast<std::size_t>(std::find(layer.buckets.begin(), layer.buckets.end(), bucket) -
                                  layer.buckets.begin());
}

const char* name_of_part(const std::vector<Op>& ops, Phase phase, bool& attention) {
  const auto has = [&](OpKind kind) {
    return std::any_of(ops.begin(), ops.end(), [kind](const Op& op) { return op.kind == kind; });
  };
  const bool forward = phase != Phase::backward;
  if (std::any_of(ops.begin(), ops.end(), [](const Op& op) { return models::attends(op); })) {
    attention = true;
    return "attention";
  }
  if (has(OpKind::matmul)) return attention == forward ? "mlp" : "attention";
  return forward && has(OpKind::add_bias) ? "residual" : "norm";
}

std::map<TensorRole, BufferId> load_inputs(ClassBuilder& build, const Plan& plan, bool embeds, bool heads) {
  const PlanSpec& spec = plan.spec();
  std::map<TensorRole, BufferId> out;
  Op load = models::load_of(plan.model(), spec.shape.micro_batch, spec.tokens_per_rank(), spec.mesh.context);
  for (const models::Input& input : models::inputs_of(plan.model(), load.batch, load.sequence)) {
    load.out.push_back(-1);
    if (!(input.of_embedding ? embeds : heads) || input.elements == 0) continue;
    out[input.role] = build.buffer(input.name, Purpose::input, DType::int32, input.elements);
    load.out.back() = build.view(build.whole(out[input.role]));
  }
  build.compute(Phase::input, "load_tokens", {std::move(load)});
  return out;
}

LayerId mixture_of(const models::Model& model, models::LayerKind kind, LayerId layer) {
  if (kind == models::LayerKind::embedding || (kind == models::LayerKind::head && !model.further.any())) return {};
  const LayerId block = kind == models::LayerKind::head ? LayerId(model.layers) : layer;
  return model.has_experts(block.written()) ? block : LayerId();
}

void add_expert_buffers(ClassBuilder& build, const models::Model& model, const std::vector<StageLayer>& layers_of,
                        bool forward_only) {
  RankClass& rank_class = build.result();
  const models::Experts& experts = model.experts;
  for (const StageLayer& layer : layers_of)
    if (const LayerId mixture = mixture_of(model, layer.kind, layer.layer)) rank_class.expert_layers.push_back(mixture);
  // A mirrored stage has its chunks the other way round, and the two add up their tallies.
  std::sort(rank_class.expert_layers.begin(), rank_class.expert_layers.end());
  const auto layers = static_cast<std::int64_t>(rank_class.expert_layers.size());
  if (experts.balance_bias && layers > 0)
    rank_class.expert_biases =
        build.buffer("expert_biases", Purpose::parameters, DType::fp32, layers * experts.count, true);
  // Losses cover all stages, so each takes part in their sums.
  if (!experts.any() || forward_only) return;
  const std::int64_t values = 2 * experts.count + 1;
  rank_class.tally =
      build.buffer("expert_tally", Purpose::scalars, DType::fp32, std::max<std::int64_t>(1, layers) * values, true);
  rank_class.pooled = build.buffer("expert_load", Purpose::scalars, DType::fp32, values, true);
  rank_class.balance = build.buffer("balance_losses", Purpose::scalars, DType::fp32, 2, true);
}

}  // namespace orrery::plan
