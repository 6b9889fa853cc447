// DeepSpeed: its configuration as JSON. What each key says is in plan/frameworks/deepspeed.cpp; here is what DeepSpeed
// cannot do, or leaves to the user's code: all parallelism but data's.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "plan/frameworks/settings.h"
#include "reports/exports/handover.h"

namespace orrery::reports {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using plan::Space;

void check_zero(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  const int stage = s.mesh.replicas() > 1 ? s.states.zero_stage : 0;
  if (s.offload.optimizer != Space::device) {
    h.needs("plan.zero_stage", stage >= 1, "an optimizer on the host without ZeRO", "`zero_stage: 1`, 2 or 3");
    h.needs("plan.offload.optimizer", s.offload.optimizer == Space::host || stage == 3,
            "an optimizer on drives without ZeRO 3", "`zero_stage: 3`, or `offload: {optimizer: host}`");
  }
  h.needs("plan.offload.parameters", s.offload.parameters == Space::device || stage == 3,
          "parameters outside the device without ZeRO 3", "`zero_stage: 3`");
  h.needs("plan.zero_group", stage < 1 || s.sub_groups() == 1 || stage == 3, "ZeRO within sub-groups below stage 3",
          "`zero_stage: 3` (MiCS), or leave `zero_group` out");
  h.note(s.offload.optimizer == Space::nvme ? "plan.offload.optimizer" : "plan.offload.parameters",
         s.offload.optimizer == Space::nvme || s.offload.parameters == Space::nvme,
         "/local_nvme stands for the folder of the node's drives", "change `nvme_path`");
}

void check_training(Handover& h) {
  const plan::Training& t = h.training();
  const plan::PlanSpec& s = h.spec();
  h.needs("job.training.learning_rate_schedule.minimum",
          t.schedule.decay != plan::Decay::linear || t.schedule.minimum == 0, "a linear decay to more than zero",
          "`minimum: 0`, or cosine");
  h.needs("job.training.learning_rate_schedule.decay",
          t.schedule.decay != plan::Decay::inverse_square_root && t.schedule.decay != plan::Decay::wsd,
          "this decay of the learning rate", "constant, linear or cosine; or a scheduler in your own code");
  h.needs("plan.precision", s.numerics.precision != DType::fp8 && s.numerics.precision != DType::fp4,
          "products in fp8 or fp4 in its configuration", "`precision: bf16`; TransformerEngine in the model's code");
  const double power = std::log2(t.loss_scaling.initial);
  h.note("job.training.loss_scaling",
         s.numerics.precision == DType::fp16 && (power != std::floor(power) || t.loss_scaling.factor != 2),
         "loss scales are powers of two");
  h.note("plan.compression.gradients", s.compresses(),
         "communication_data_type also sums in that type, while the plan sums in fp32");
}

/// A value at the path of its key.
void put(Json& into, const std::string& key, const nlohmann::json& value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos)
    into[key] = value;
  else
    put(into[key.substr(0, dot)], key.substr(dot + 1), value);
}

}  // namespace

base::Result<Settings> deepspeed_settings(Handover h) {
  const plan::PlanSpec& s = h.spec();
  h.needs("plan.expert", s.mesh.expert == 1,
          "expert parallelism: it belongs to the model's code (deepspeed.moe.layer.MoE)",
          "`expert: 1`, or export to megatron");
  h.needs(s.mesh.tensor > 1 ? "plan.tensor" : "plan.context", s.mesh.tensor == 1 && s.mesh.context == 1,
          "tensor and context parallelism: they belong to the model's code",
          "`tensor: 1, context: 1`, or export for Megatron-LM");
  h.needs("plan.pipeline", s.mesh.pipeline == 1, "pipelines: they belong to the model's code (PipelineModule)",
          "`pipeline: 1`, or export for Megatron-LM");
  check_training(h);
  check_zero(h);
  const bool checkpoints = s.recomputation.what == plan::Recompute::full;
  h.needs("plan.offload.activations", s.offload.activations == Space::device || checkpoints,
          "offloaded activations that are not checkpoints", "use `recompute: full` with it");
  h.note(s.recomputation.layers ? "plan.recompute_layers" : "plan.recompute", checkpoints,
         !s.recomputation.layers
             ? std::string("the model's code decides what is recomputed; in this plan: every block")
             : fmt::format("the model's code decides what is recomputed; in this plan: the first {} blocks",
                           *s.recomputation.layers),
         "use deepspeed.checkpointing.checkpoint around a block's forward pass");
  h.note("plan.recompute", s.recomputation.what == plan::Recompute::selective && !s.numerics.flash,
         "the model's code decides what is recomputed; in this plan: attention's probabilities");
  h.note(h.key_of_dropout(), h.dropout().any(), "dropout belongs to the model's code");
  if (!h.errors.empty()) return h.give({});
  const plan::Writing from{h.file, h.plan};
  Json c;
  for (const plan::Setting& one : h.table) {
    if (one.write == nullptr) continue;
    if (const nlohmann::json value = one.write(from); !value.is_null()) put(c, one.key, value);
  }
  return h.give(c.dump(2) + "\n");
}

}  // namespace orrery::reports
