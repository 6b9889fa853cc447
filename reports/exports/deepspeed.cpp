// DeepSpeed: its configuration as JSON. Parallelism other than data's is left to the user's code.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "reports/exports/handover.h"

namespace orrery::reports {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using plan::Space;

Json device_of(const Space space) {
  if (space == Space::host) return {{"device", "cpu"}, {"pin_memory", true}};
  return {{"device", "nvme"}, {"nvme_path", "/local_nvme"}, {"pin_memory", true}};
}

Json zero_of(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  const int stage = s.mesh.replicas() > 1 ? s.states.zero_stage : 0;
  Json z = {{"stage", stage},
            {"contiguous_gradients", true},
            {"reduce_scatter", true},
            {"overlap_comm", stage >= 2 || s.reduces_early()}};
  if (s.offload.optimizer != Space::device) {
    h.needs(stage >= 1, "an optimizer on the host without ZeRO", "`zero_stage: 1`, 2 or 3");
    h.needs(s.offload.optimizer == Space::host || stage == 3, "an optimizer on drives without ZeRO 3",
            "`zero_stage: 3`, or `offload: {optimizer: host}`");
    z["offload_optimizer"] = device_of(s.offload.optimizer);
  }
  if (s.offload.parameters != Space::device) {
    h.needs(stage == 3, "parameters outside the device without ZeRO 3", "`zero_stage: 3`");
    z["offload_param"] = device_of(s.offload.parameters);
  }
  if (stage >= 1 && s.sub_groups() > 1) {
    h.needs(stage == 3, "ZeRO within sub-groups below stage 3", "`zero_stage: 3` (MiCS), or leave `zero_group` out");
    z["mics_shard_size"] = s.shards();
    z["mics_hierarchical_params_gather"] = false;
  }
  h.note(s.offload.optimizer == Space::nvme || s.offload.parameters == Space::nvme,
         "/local_nvme stands for the folder of the node's drives", "change `nvme_path`");
  return z;
}

Json optimizer_of(const plan::Optimizer& o) {
  const plan::OptimizerTraits& traits = plan::traits_of(o.kind);
  Json params = {{"lr", o.learning_rate}};
  if (traits.keys.momentum) params["momentum"] = o.momentum;
  if (traits.keys.betas) params["betas"] = {o.beta1, o.beta2};
  if (traits.keys.epsilon) params["eps"] = o.epsilon;
  params["weight_decay"] = o.weight_decay;
  return {{"type", std::string(traits.deepspeed)}, {"params", std::move(params)}};
}

Json scheduler_of(Handover& h) {
  const plan::Training& t = h.training();
  const double peak = t.optimizer.learning_rate;
  const Json warmup = {{"warmup_num_steps", t.schedule.warmup_steps}};
  Json params = warmup;
  const auto rates = [&] {
    params["warmup_min_lr"] = 0;
    params["warmup_max_lr"] = peak;
    params["warmup_type"] = "linear";
  };
  switch (t.schedule.decay) {
    case plan::Decay::none:
      if (t.schedule.warmup_steps == 0) return nullptr;
      rates();
      return {{"type", "WarmupLR"}, {"params", params}};
    case plan::Decay::linear:
      h.needs(t.schedule.minimum == 0, "a linear decay to more than zero", "`minimum: 0`, or cosine");
      rates();
      params["total_num_steps"] = t.steps;
      return {{"type", "WarmupDecayLR"}, {"params", params}};
    case plan::Decay::cosine:
      params["total_num_steps"] = t.steps;
      params["warmup_min_ratio"] = 0;
      params["cos_min_ratio"] = peak > 0 ? t.schedule.minimum / peak : 0;
      params["warmup_type"] = "linear";
      return {{"type", "WarmupCosineLR"}, {"params", params}};
    case plan::Decay::inverse_square_root:
    case plan::Decay::wsd: break;
  }
  h.needs(false, "this decay of the learning rate", "constant, linear or cosine; or a scheduler in your own code");
  return nullptr;
}

void precision_of(Handover& h, Json& c) {
  const plan::PlanSpec& s = h.spec();
  h.needs(s.numerics.precision != DType::fp8 && s.numerics.precision != DType::fp4,
          "products in fp8 or fp4 in its configuration", "`precision: bf16`; TransformerEngine in the model's code");
  if (s.numerics.precision == DType::bf16) c["bf16"] = {{"enabled", true}};
  if (s.numerics.precision == DType::fp16) {
    const plan::LossScaling& l = h.training().loss_scaling;
    const double power = std::log2(l.initial);
    h.note(power != std::floor(power) || l.factor != 2, "loss scales are powers of two");
    c["fp16"] = {{"enabled", true},
                 {"loss_scale", 0},
                 {"initial_scale_power", static_cast<std::int64_t>(std::llround(power))},
                 {"loss_scale_window", l.interval},
                 {"hysteresis", 1}};
  }
  if (!s.compresses()) return;
  const bool bf16 = s.compression.gradients == plan::GradientCompression::bf16;
  c["communication_data_type"] = bf16 ? "bf16" : "fp16";
  h.note(true, "communication_data_type also sums in that type, while the plan sums in fp32");
}

}  // namespace

base::Result<Settings> deepspeed_settings(Handover h) {
  const plan::PlanSpec& s = h.spec();
  h.needs(s.mesh.expert == 1, "expert parallelism: it belongs to the model's code (deepspeed.moe.layer.MoE)",
          "`expert: 1`, or export to megatron");
  h.needs(s.mesh.tensor == 1 && s.mesh.context == 1, "tensor and context parallelism: they belong to the model's code",
          "`tensor: 1, context: 1`, or export for Megatron-LM");
  h.needs(s.mesh.pipeline == 1, "pipelines: they belong to the model's code (PipelineModule)",
          "`pipeline: 1`, or export for Megatron-LM");
  Json c = {{"train_batch_size", s.shape.batch},
            {"train_micro_batch_size_per_gpu", s.shape.micro_batch},
            {"gradient_accumulation_steps", h.plan.micro_batches()}};
  if (h.training().clip_norm) c["gradient_clipping"] = *h.training().clip_norm;
  precision_of(h, c);
  c["zero_optimization"] = zero_of(h);
  c["optimizer"] = optimizer_of(h.training().optimizer);
  if (Json scheduler = scheduler_of(h); !scheduler.is_null()) c["scheduler"] = std::move(scheduler);
  const bool checkpoints = s.recomputation.what == plan::Recompute::full;
  h.needs(s.offload.activations == Space::device || checkpoints, "offloaded activations that are not checkpoints",
          "use `recompute: full` with it");
  if (checkpoints) {
    c["activation_checkpointing"] = {{"partition_activations", s.recomputation.partition_checkpoints},
                                     {"cpu_checkpointing", s.offload.activations == Space::host},
                                     {"contiguous_memory_optimization", false}};
    h.note(true,
           !s.recomputation.layers
               ? std::string("the model's code decides what is recomputed; in this plan: every block")
               : fmt::format("the model's code decides what is recomputed; in this plan: the first {} blocks",
                             *s.recomputation.layers),
           "use deepspeed.checkpointing.checkpoint around a block's forward pass");
  }
  h.note(s.recomputation.what == plan::Recompute::selective && !s.numerics.flash,
         "the model's code decides what is recomputed; in this plan: attention's probabilities");
  h.note(h.dropout().any(), "dropout belongs to the model's code");
  c["wall_clock_breakdown"] = false;
  return h.give(c.dump(2) + "\n");
}

}  // namespace orrery::reports
