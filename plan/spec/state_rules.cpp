// States: partitions, memories, and what their updates need.
#include "plan/spec/plan_rules.h"

#include <fmt/core.h>

#include "plan/spec/optimizers.h"

namespace orrery::plan {

void zero_rules(const Proposed& p, BrokenRules& broken) {
  broken.rule(p.spec.states.zero_stage >= 0 && p.spec.states.zero_stage <= 3, "P11",
              text("ZeRO stage {}", p.spec.states.zero_stage));
  broken.rule(p.spec.states.zero_stage == 0 || p.spec.mesh.replicas() > 1, "P12",
              text("ZeRO stage {} has nothing to partition with data 1", p.spec.states.zero_stage));
  const int group = p.spec.states.zero_group;
  broken.rule(group == 0 || (group > 0 && p.spec.mesh.replicas() % group == 0), "P40",
              text("zero_group {} does not divide the {} replicas into sub-groups of equal size", group,
                   p.spec.mesh.replicas()));
  broken.rule(group == 0 || (group > 1 && p.spec.states.zero_stage > 0), "P41",
              text("zero_group {} {}", group,
                   group == 1 ? "leaves every rank with all the states"
                              : "gives the number of ranks that states are partitioned among, but ZeRO 0 partitions "
                                "none"),
              group == 1 ? "zero_stage: 0" : "use zero_stage: 1, 2 or 3, or leave zero_group out");
}

void offload_rules(const Proposed& p, BrokenRules& broken) {
  const Offload& o = p.spec.offload;
  broken.rule(o.activations != Space::nvme, "P51", "activations can be offloaded to the host's memory only");
  broken.rule(o.optimizer == Space::device || !p.spec.stages.splits_backward(), "P52",
              text("{} adds to a layer's gradients after other micro-batches have passed it, when an offloaded "
                   "optimizer has already sent them to the host",
                   name_of(p.spec.stages.order)),
              "schedule: 1f1b, or offload: {optimizer: none}");
  const bool partitions_some =
      p.spec.mesh.replicas() > 1 && (p.spec.states.zero_stage == 1 || p.spec.states.zero_stage == 2);
  broken.rule(o.parameters == Space::device || !partitions_some, "P53",
              text("ZeRO {} keeps whole parameters on every device; offloaded parameters need ZeRO 0 or 3",
                   p.spec.states.zero_stage));
  broken.rule(o.parameters == Space::device || !p.spec.stages.splits_backward(), "P52",
              text("{} reads a layer's parameters in two passes, so they would have to be fetched twice",
                   name_of(p.spec.stages.order)),
              "schedule: 1f1b, or offload: {parameters: none}");
  broken.rule(!o.any() || !p.spec.stages.asynchronous(), "P52",
              text("{} keeps versions of the weights on the device, and offloading these is not supported yet",
                   name_of(p.spec.stages.order)),
              "use schedule: 1f1b, or no offload");
  broken.rule(o.optimizer == Space::device || traits_of(p.spec.states.optimizer).offloads, "P55",
              text("the host's cores cannot do the update of {}", name_of(p.spec.states.optimizer)), "adamw or adam");
  broken.rule(o.optimizer == Space::device || p.spec.numerics.rounding == Rounding::nearest, "P56",
              "an offloaded optimizer keeps fp32 masters, but stochastic rounding is for parameters without masters");
  const bool files = o.optimizer == Space::nvme || o.parameters == Space::nvme;
  const bool gpu = p.cluster.device().kind != clusters::DeviceKind::cpu;
  broken.rule(!files || !gpu || p.cluster.nvme.read.value > 0, "P54",
              text("the nodes of {} have no NVMe drives to offload to", p.cluster.name));
  broken.rule(o.prefetch >= 1, "P01", "offload.prefetch must be at least 1");
}

void rounding_rules(const Proposed& p, BrokenRules& broken) {
  broken.rule(p.spec.numerics.rounding == Rounding::nearest || p.spec.numerics.precision == models::DType::bf16, "P50",
              text("stochastic rounding is for bf16 parameters, but the plan has them in {}",
                   models::name_of(p.spec.numerics.precision)));
}

void whole_matrix_rules(const Proposed& p, BrokenRules& broken) {
  if (!traits_of(p.spec.states.optimizer).whole_matrices()) return;
  const char* name = name_of(p.spec.states.optimizer);
  broken.rule(!p.spec.stages.asynchronous(), "P160",
              text("{} gathers whole matrices between two steps, but the stages of {} never stop", name,
                   name_of(p.spec.stages.order)));
  broken.rule(!p.spec.exchanges_by_node(), "P161",
              text("{} gathers whole matrices from consecutive shards, but the shards of gradients exchanged by node "
                   "are not consecutive",
                   name));
}

void adapter_rules(const Proposed& p, BrokenRules& broken) {
  const models::Lora& lora = p.model.lora;
  if (!lora.any()) return;
  const auto refuse = [&](bool holds, const char* what, const char* help) {
    broken.rule(!holds, "P165", text("adapters leave weights frozen, but {}", what), help);
  };
  const auto has = [&](auto&& holds) { return p.model.blocks_with(p.model.layers, holds) > 0; };
  const bool mlps =
      (lora.up || lora.down) && has([](const models::BlockParts& one) { return one.feed == models::Feed::mlp; });
  const bool attends = has([](const models::BlockParts& one) { return models::attends(one); });
  broken.rule((lora.projection && attends) || mlps || (lora.qkv && attends && !p.model.latent.any()), "P165",
              text("{} has none of the products that the adapters name", p.model.name),
              "targets: [proj]; experts, state spaces and latent attention's narrow products have no adapters");
  refuse(p.spec.stages.asynchronous() || p.spec.states.has_server() || p.spec.stages.mirrors(),
         "asynchronous training and DualPipe keep several copies of them", "schedule: 1f1b or dualpipe-v");
  refuse(p.spec.compresses() || p.spec.compression.activations != ActivationEncoding::none,
         "compression treats a layer's gradients and activations as if all of it trained",
         "leave compression out; adapters hardly need it");
  refuse(p.spec.offload.states(), "offload moves weights and states together",
         "offload: {activations} alone; the adapters' states are small");
}

}  // namespace orrery::plan
