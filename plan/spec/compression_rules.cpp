// Gradients and activations in fewer bits, and the loss in chunks.
#include "plan/spec/plan_rules.h"

#include <fmt/core.h>

#include "models/layers/inputs.h"

namespace orrery::plan {

namespace {

void lossless_rules(const Proposed& p, BrokenRules& broken) {
  broken.rule(p.model.activation == models::Activation::relu, "P95",
              "lossless storage leaves out the zeros of a ReLU, but this model has another activation");
  const bool rounds =
      p.spec.numerics.precision == models::DType::fp8 || p.spec.numerics.precision == models::DType::fp4;
  broken.rule(!rounds, "P99",
              "a product whose operands were rounded cannot be recomputed where more than `capacity` is nonzero");
  broken.rule(
      p.spec.states.zero_stage < 3 && p.spec.offload.parameters == Space::device && !p.spec.mesh.shards_rows(), "P96",
      "if more than `capacity` of the values are nonzero, the ReLU is recomputed from the MLP's input and weight, "
      "which ZeRO 3, offloaded parameters and sequence parallelism have freed by then");
}

}  // namespace

void gradient_compression_rules(const Proposed& p, BrokenRules& broken) {
  const GradientCompression how = p.spec.compression.gradients;
  broken.rule(p.spec.compression.start == 0 || how == GradientCompression::powersgd, "P102",
              text("compression.start says after how many steps PowerSGD begins, but this plan has gradients: {}",
                   name_of(how)));
  if (how == GradientCompression::none) return;
  const bool low_rank = how == GradientCompression::powersgd, fp16 = p.spec.numerics.precision == models::DType::fp16;
  broken.rule(p.spec.mesh.replicas() > 1, "P70", "without other replicas no gradients travel");
  broken.rule(!fp16 || how != GradientCompression::bf16, "P71",
              "fp16 training has gradients in fp16, and bf16 would round their small values away");
  broken.rule(!low_rank || p.spec.states.zero_stage <= 1, "P72",
              text("PowerSGD needs whole gradients at the end of the step for its error, but ZeRO {} keeps only a part",
                   p.spec.states.zero_stage));
  broken.rule(!low_rank || !fp16, "P73",
              "PowerSGD keeps its error from step to step, but the scale of fp16 gradients changes between steps");
  broken.rule(
      p.spec.shards() == p.spec.mesh.replicas() && p.spec.stages.order != Order::dualpipe, "P79",
      "compressed gradients are summed over all replicas at once: neither within ZeRO's sub-groups first, nor over "
      "the two ends of a bidirectional pipeline");
  const int group = p.spec.compression.group;
  broken.rule(group == 0 || (!low_rank && !fp16 && group > 1 && group < p.spec.mesh.replicas() &&
                             p.spec.mesh.replicas() % group == 0),
              "P97",
              text("groups of {} of {} replicas cannot sum in full before they exchange in 16 bits: that takes fp32 "
                   "gradients, and groups that divide the replicas",
                   group, p.spec.mesh.replicas()));
  broken.rule(
      group == 0 || p.spec.states.zero_stage < 3, "P101",
      "ZeRO 3 gathers parameters in every pass; if gradients are exchanged by node, parameters would have to be "
      "gathered by node too, which is not supported");
  broken.rule(p.spec.offload.optimizer == Space::device, "P74",
              "gradients are compressed on the device, but an offloaded optimizer sums them on the host");
}

void activation_encoding_rules(const Proposed& p, BrokenRules& broken) {
  const ActivationEncoding how = p.spec.compression.activations;
  if (how == ActivationEncoding::none) return;
  const bool narrow =
      p.spec.numerics.precision != models::DType::fp32 && p.spec.numerics.precision != models::DType::tf32;
  broken.rule(!narrow || how != ActivationEncoding::fp16, "P75",
              text("activations in {} training have 16 bits anyway", models::name_of(p.spec.numerics.precision)));
  broken.rule(p.spec.offload.activations == Space::device, "P76",
              "saved activations can be kept in full on the host, or in fewer bits on the device, not both");
  broken.rule(!p.spec.stages.splits_backward() && !p.spec.stages.asynchronous(), "P77",
              text("{} reads what a layer saved in two passes, or steps later, so it would have to be decoded and "
                   "kept in full",
                   name_of(p.spec.stages.order)));
  if (how == ActivationEncoding::lossless) lossless_rules(p, broken);
}

void loss_chunk_rules(const Proposed& p, BrokenRules& broken) {
  if (p.spec.numerics.loss_chunks == 1) return;
  const std::int64_t each = models::predictions_per_sequence(p.model, p.spec.shape.sequence);
  const std::int64_t rows = p.spec.shape.micro_batch * (each > 0 ? each : p.spec.tokens_per_rank());
  broken.rule(p.spec.numerics.loss_chunks > 0 && rows % p.spec.numerics.loss_chunks == 0, "P85",
              text("loss_chunks {} does not divide the {} rows of a micro-batch for which the head computes logits",
                   p.spec.numerics.loss_chunks, rows));
  broken.rule(!p.spec.stages.splits_backward(), "P86",
              text("{} computes weight gradients in a later pass, for which all logits would have to be kept",
                   name_of(p.spec.stages.order)));
}

}  // namespace orrery::plan
