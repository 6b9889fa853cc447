// torchtitan: its job configuration as TOML. What each key says is in plan/frameworks/torchtitan.cpp; here is what
// torchtitan cannot do.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan/frameworks/settings.h"
#include "reports/exports/handover.h"
#include "reports/exports/shell.h"

namespace orrery::reports {
namespace {

using models::DType;
using plan::Order;
using plan::Space;

void check_titan_split(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  const int stage = s.mesh.replicas() > 1 ? s.states.zero_stage : 0;
  h.needs("model.name", plan::torchtitan_model(h.model()) != nullptr, "this model: it has flavors of its own",
          "llama3-8b, -70b or -405b, qwen3-8b, -32b, -30b-a3b or -235b-a22b, deepseek-v3");
  h.needs("plan.zero_stage", stage != 1 || s.mesh.pipeline > 1, "optimizer states alone partitioned without a pipeline",
          "`zero_stage: 0` (DDP), 2 or 3 (FSDP2)");
  h.needs("plan.zero_stage", stage < 2 || s.mesh.pipeline == 1,
          "gradients partitioned in a pipeline, where it reduces them once a step",
          "`zero_stage: 1`, which its FSDP2 is there");
  h.needs("plan.zero_stage", stage > 0 || s.mesh.replicas() == 1 || s.mesh.ranks() == s.mesh.data,
          "replicas that hold everything beside other parallelism (its DDP stands alone)",
          s.mesh.pipeline > 1 ? "`zero_stage: 1`" : "`zero_stage: 2` or 3");
  h.needs("plan.sequence_parallel", s.mesh.tensor == 1 || s.mesh.sequence_parallel,
          "tensor parallelism with whole rows in its norms", "`sequence_parallel: true`");
  const bool whole = s.sub_groups() == 1 || (s.shards() % s.mesh.context == 0 && s.mesh.data % s.sub_groups() == 0);
  h.needs("plan.zero_group", stage == 0 || whole, "sub-groups that divide the ranks of one sequence",
          "a `zero_group` of whole sequences");
  h.needs("plan.schedule", s.mesh.pipeline == 1 || s.stages.virtual_stages == 1 || s.stages.order == Order::one_f_one_b,
          "this order with virtual stages", "`schedule: 1f1b`");
  h.needs("plan.expert", !h.model().experts.any() || s.mesh.expert_ways() == 1 || s.mesh.expert_ways() == s.mesh.tensor,
          "experts over another number of ranks than 1 or the tensor group", "`expert_tensor: 1`");
  h.needs("plan.tokens", !s.tokens.encoded(), "rows of tokens in fewer bits", "no `tokens`");
  h.needs("plan.compression.gradients", !s.compresses(), "gradients in fewer bits", "`compression: {gradients: none}`");
  h.note("plan.pipeline", s.mesh.pipeline > 1,
         "a pipeline needs as many micro-batches in training.local_batch_size as it has stages");
  h.note("plan.overlap_gradients", stage == 0 && s.mesh.replicas() > 1 && !s.states.overlap_gradients,
         "its DDP reduces gradients during backward, the plan after it");
  h.note("plan.context", s.mesh.context > 1,
         "its context parallelism gathers keys and values, the plan passes them round a ring");
}

void check_titan_memory(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  h.needs({{"plan.recompute_layers", !s.recomputation.layers, "recomputation of some layers"},
           {"plan.partition_checkpoints", !s.recomputation.partition_checkpoints, "partitioned checkpoints"}},
          "`recompute: full` or selective of all layers");
  h.needs("plan.recompute_modules",
          s.recomputation.what != plan::Recompute::selective || s.recomputation.modules.empty(),
          "recomputation of single modules", "`recompute: selective` without modules, which is by operator");
  h.needs("plan.flash", s.numerics.flash, "attention with its whole score matrix", "`flash: true`");
  h.needs("plan.offload.activations", s.offload.activations == Space::device, "offloaded activations",
          "`offload: {activations: device}`");
  h.needs({{"plan.offload.optimizer", s.offload.optimizer != Space::nvme, "optimizer states on drives"},
           {"plan.offload.parameters", s.offload.parameters != Space::nvme, "parameters on drives"}},
          "`offload: {optimizer: host, parameters: host}`");
  h.needs("plan.offload.optimizer", s.offload.optimizer == s.offload.parameters,
          "parameters and optimizer in different memories",
          "`offload: {optimizer: host, parameters: host}`, or neither");
}

void check_titan_training(Handover& h) {
  const plan::Training& t = h.training();
  const DType precision = h.spec().numerics.precision;
  h.needs("plan.precision", precision == DType::bf16 || precision == DType::fp8 || precision == DType::fp32,
          "this precision", "`precision: bf16`, fp8 or fp32");
  h.needs("job.training.learning_rate_schedule.decay", t.schedule.decay != plan::Decay::inverse_square_root,
          "a decay by the inverse square root", "linear, cosine, wsd or none");
  h.note("job.training.clip_norm", !t.clip_norm,
         "it always clips, at a norm of 1 unless training.max_norm says otherwise");
  h.note("plan.vocab_multiple",
         h.spec().numerics.vocab_multiple != 1 && h.model().vocab % h.spec().numerics.vocab_multiple != 0,
         "it does not pad the vocabulary");
  h.needs("job.training.dropout", !h.dropout().any(), "dropout", "`dropout: 0`");
}

std::string toml_value(const nlohmann::json& value) {
  if (value.is_number_float()) {
    const std::string text = fmt::format("{}", value.get<double>());
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  if (!value.is_array()) return value.dump();  // a JSON string is a TOML string
  std::string out;
  for (const nlohmann::json& one : value) out += (out.empty() ? "" : ", ") + toml_value(one);
  return "[" + out + "]";
}

}  // namespace

base::Result<Settings> torchtitan_settings(Handover h) {
  check_titan_split(h);
  check_titan_memory(h);
  check_titan_training(h);
  if (!h.errors.empty()) return h.give({});
  std::string text = fmt::format(
      "# {} on {} devices of {}: {}.\n"
      "# Written by `orrery export` from {} for torchtitan v0.2.2. `compile` is as its recipes have it.\n",
      shell_comment(h.model().name), h.spec().mesh.ranks(), shell_comment(h.file.cluster.name),
      shell_comment(plan::describe(h.spec())), shell_comment(h.path));
  std::string section;
  const plan::Writing from{h.file, h.plan};
  for (const plan::Setting& one : h.table) {
    if (one.write == nullptr) continue;
    const nlohmann::json value = one.write(from);
    if (value.is_null()) continue;
    if (section != one.group) text += fmt::format("\n[{}]\n", section = one.group);
    const std::string key = one.key;
    text += fmt::format("{} = {}\n", key.substr(section.size() + 1), toml_value(value));
  }
  return h.give(std::move(text));
}

}  // namespace orrery::reports
