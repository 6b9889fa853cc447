// Megatron-LM: a script of flags in groups, and torchrun. What each flag says is in plan/frameworks/megatron.cpp; here
// is what Megatron-LM cannot do, or does otherwise.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/units.h"
#include "plan/frameworks/settings.h"
#include "plan/spec/plan.h"
#include "reports/exports/handover.h"
#include "reports/exports/shell.h"

namespace orrery::reports {
namespace {

using models::DType;
using plan::Order;
using plan::Space;

/// A value as words of a shell: numbers as they are, texts quoted where they must be.
std::string shell_value(const nlohmann::json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool plain = !text.empty() && text.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_./,:+-") == std::string::npos;
    return plain ? text : shell_word(text);
  }
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string out;
  for (const nlohmann::json& one : value) out += (out.empty() ? "" : " ") + shell_value(one);
  return out;
}

/// The flags of a group as a bash array, a flag a line.
std::string flags_of(const Handover& h, const std::string& group) {
  const plan::Writing from{h.file, h.plan};
  std::string out = group + "=(\n";
  for (const plan::Setting& one : h.table) {
    if (one.write == nullptr || group != one.group) continue;
    const nlohmann::json value = one.write(from);
    if (value.is_null()) continue;
    out +=
        value.is_boolean() ? fmt::format("  --{}\n", one.key) : fmt::format("  --{} {}\n", one.key, shell_value(value));
  }
  return out + ")\n";
}

bool is_fsdp(const plan::PlanSpec& s) {
  return plan::partitions_gradients(s);
}

void check_experts(Handover& h) {
  using models::Scores;
  const models::Experts& e = h.model().experts;
  if (!e.any()) return;
  const bool one = e.chosen == 1, sigmoid = e.scores == Scores::sigmoid;
  h.needs({{"model.experts.router_bias", !e.router_bias, "biases of routers"},
           {"model.experts.expert_bias", !e.expert_bias, "biases of experts"}},
          "experts without biases, or gpt-oss's own recipe");
  h.needs({{"model.experts.scores", e.scores != Scores::sparse_mixer, "routers that draw their experts"},
           {"model.experts.scores", e.scores != Scores::sqrt_softplus, "routers that score by roots of softplus"},
           {"model.experts.hashed", e.hashed == 0, "routers that choose by ids"},
           {"model.experts.limit", e.limit == 0, "limited experts"}},
          "`scores: softmax_chosen`, without `hashed` and `limit`");
  h.needs("model.experts.narrow", e.narrow == 0, "experts that work on narrower copies of tokens", "`narrow: 0`");
  h.needs("plan.tokens", !h.spec().tokens.encoded(), "rows of tokens in fewer bits", "no `tokens`");
  h.needs("model.experts.normalised", !sigmoid || e.normalised || one,
          "weights from sigmoids that are not divided by their sum", "`normalised: true`");
  h.needs("model.experts.normalised", !one || (!e.normalised && e.scores != Scores::softmax_chosen),
          "a weight of 1 for a token's one expert", "`normalised: false`");
  // There, a group's score is the sum of its best experts, as many as a token takes from each group.
  h.note("model.experts.groups", e.groups > 1 && e.chosen / e.groups_chosen != (e.groups_by_two ? 2 : 1),
         "it chooses groups of experts by other sums");
  h.note("model.experts.aux_coefficient", e.aux_coefficient > 0 && e.layers_of(h.model().layers) > 1,
         "its balancing loss covers each layer separately, ours all layers together");
  h.note("model.experts.capacity_factor", e.capacity_factor > 0,
         "its capacity limits a micro-batch's tokens, by weight; ours a sequence's, by order");
}

/// Megatron-Core's rotary_pos_embedding.py has Llama 3.1's numbers, except the factor.
void check_rope_scaling(Handover& h) {
  const models::RopeScaling& s = h.model().rope_scaling;
  switch (s.kind) {
    case models::RopeKind::none: return;
    case models::RopeKind::linear:
      return h.needs("model.rope_scaling", s.factor == std::floor(s.factor), "rotary positions scaled by a fraction",
                     "a whole `factor`");
    case models::RopeKind::longrope:
      return h.needs("model.rope_scaling", false, "rotary pairs with a divisor each", "leave `rope_scaling` out");
    case models::RopeKind::proportional:
      return h.needs("model.rope_scaling", false, "pairs far apart of which some turn", "leave `rope_scaling` out");
    case models::RopeKind::llama3: {
      constexpr std::int64_t kTokens = 8192;
      return h.needs("model.rope_scaling", s.original == kTokens && s.low == 1 && s.high == 4,
                     "scaled rotary positions with other bounds", "{type: llama3, original: 8192, low: 1, high: 4}");
    }
    case models::RopeKind::yarn: {
      // Only latent attention has it, with DeepSeek's numbers except the factor and the weight.
      constexpr std::int64_t kTokens = 4096;
      constexpr double kFast = 32;
      return h.needs("model.rope_scaling",
                     h.model().latent.any() && s.original == kTokens && s.low == 1 && s.high == kFast &&
                         s.whole_pairs && s.attention == 1 && s.score_weight > 0,
                     "YaRN but for latent attention, and with other numbers than DeepSeek's",
                     "leave `rope_scaling` out, or write {type: yarn, original: 4096, low: 1, high: 32, attention: 1, "
                     "score_weight: 1}");
    }
  }
}

const char* const kExported = "GPTs, Llamas, Qwens and Nemotrons can be exported";

/// An error if the model has `what`: Megatron-LM has flags for it, which this export does not write.
void leaves_out(Handover& h, const char* key, bool has, const std::string& what, const std::string& help) {
  if (!has) return;
  base::Diagnostic found{base::Severity::error,
                         "E0631",
                         {h.path, 1, 1, 1},
                         fmt::format("this export does not write {} for Megatron-LM", what),
                         help,
                         {}};
  h.errors.push_back(h.placed ? h.placed(key, std::move(found)) : std::move(found));
}

/// Megatron-LM counts the tokens before a token, and not the token itself.
std::string flags_of_windows(const models::Model& m) {
  const std::string size = fmt::format("`--window-size {},0`", m.window - 1);
  if (m.full_first || !m.full_layers.empty())
    return size + " and a --window-attn-skip-freq that lists its layers, 1 for a window and 0 for none,";
  return m.window_period > 0 ? size + fmt::format(" and `--window-attn-skip-freq {}`", m.window_period) : size;
}

/// What blocks compute beside attention.
void check_blocks(Handover& h) {
  const models::Model& m = h.model();
  const models::Activation a = m.activation;
  h.needs({{"model.causal", m.causal, "BERT (its trainer has left the main branch)"},
           {"model.pre_norm", !m.causal || m.pre_norm, "norms behind what is added"},
           {"model.next_sentence", !m.causal || !m.next_sentence, "predictions of the next sentence"}},
          "GPTs and Llamas can be exported");
  h.needs("model.activation", a != models::Activation::relu, "ReLU as it is", "gelu, or swiglu");
  leaves_out(h, "model.activation", a == models::Activation::clamped_swiglu, "a clamped SwiGLU",
             "export it with swiglu, and replace --swiglu by hand with `--quick-geglu --glu-linear-offset 1.0 "
             "--activation-func-clamp-value 7.0`");
  h.needs("model.activation", a != models::Activation::geglu, "a gate with GELU", "swiglu, or gelu");
  h.needs("model.activation", a != models::Activation::xielu, "xIELU", "another activation");
  h.needs({{"model.parallel", !m.parallel, "attention parallel to the MLP"},
           {"model.output_norm", !m.output_norm, "norms of outputs"},
           {"model.embedding_norm", !m.embedding_norm, "norms of embeddings"},
           {"model.scaled_embedding", !m.scaled_embedding, "embeddings scaled by their width"},
           {"model.embedding_scale", m.embedding_scale == 1, "scales of embeddings"},
           {"model.residual_scale", m.residual_scale == 1, "scales of what is added to the residual"},
           {"model.logit_scale", m.logit_scale == 1, "scales of logits"},
           {"model.attention_bias", m.attention_bias, "biases of the MLP alone"},
           {"model.out_bias", !m.out_bias, "biases of attention's last product alone"},
           {"model.head_bias", !m.head_bias, "biases of the head"},
           {"model.joint_qk_norm", !m.joint_qk_norm, "norms over all heads of q and k"},
           {"model.late_qk_norm", !m.late_qk_norm, "norms of q and k behind their rotation"}},
          kExported);
  const bool biases = m.normalisation == models::Normalisation::rms_norm || m.norm_bias;
  h.needs({{"model.norm_weight", m.norm_weight, "norms without weights"},
           {"model.norm_bias", biases, "LayerNorms without biases"}},
          "RMSNorm, or LayerNorms with biases, with weights");
  h.needs("model.normed_skip", !m.normed_skip, "additions to what norms make", "models without `normed_skip`");
  h.needs("model.pattern", m.pattern.empty(), "state spaces and patterns of layers", "models without `pattern`");
  h.needs({{"model.gate_scale", m.gate_scale == 1, "scales of gates"},
           {"model.mlp_scale", m.mlp_scale == 1, "scales of MLPs"},
           {"model.layer_inputs", !m.layer_inputs.any(), "inputs of each layer"},
           {"model.streams", !m.streams.any(), "several residual streams"},
           {"model.experts.beside", !m.experts.beside, "experts beside an MLP"}},
          kExported);
}

/// What attention does.
void check_attention(Handover& h) {
  const models::Model& m = h.model();
  h.needs({{"model.positions", m.positions != models::Positions::alibi, "ALiBi"},
           {"model.position_offset", m.position_offset == 0, "position offsets"},
           {"model.query_scale", m.query_scale == 0, "scales of queries of its own"},
           {"model.attention_cap", m.attention_cap == 0, "caps of scores"},
           {"model.logit_cap", m.logit_cap == 0, "caps of logits"},
           {"model.score_factor", m.score_factor == 1, "scales of scores"}},
          kExported);
  h.needs("model.indexer", !m.indexer.any(), "attention that reads chosen tokens alone", "models without `indexer`");
  leaves_out(h, "model.window", m.window > 0, "windows",
             fmt::format("export it without `window`, and add {} by hand", flags_of_windows(m)));
  leaves_out(h, "model.attention_gate", m.attention_gate, "a gate of attention's output",
             "export it without `attention_gate`, and add `--attention-output-gate` by hand");
  h.needs({{"model.head_gate", !m.head_gate, "a gate of each head"},
           {"model.window_heads", m.window_heads == 0, "layers with a number of heads of their own"},
           {"model.value_dim", m.value_dim == 0, "values of a width of their own"},
           {"model.window_kv_heads", m.window_kv_heads == 0, "windows with a number of heads of their own"},
           {"model.value_scale", m.value_scale == 1, "scales of values"},
           {"model.window_head_dim", m.window_head_dim == 0, "heads of two widths"},
           {"model.window_theta", m.window_theta == 0, "windows that rotate at rates of their own"},
           {"model.sinks_in_windows", !m.sinks_in_windows, "learned attention logits in windows alone"},
           {"model.value_norm", !m.value_norm, "norms of values"},
           {"model.shared_keys", !m.shared_keys.any(), "keys of other layers"}},
          "models without these");
  leaves_out(h, "model.attention_sinks", m.attention_sinks && !m.sinks_in_windows,
             "learned attention logits beside the scores",
             "export it without `attention_sinks`, and add `--softmax-type learnable` by hand");
  if (m.positions == models::Positions::rope) check_rope_scaling(h);
}

void check_model(Handover& h) {
  const models::Dropout dropout = h.dropout();
  check_blocks(h);
  check_attention(h);
  h.note(
      h.key_of_dropout(), dropout.embedding != dropout.residual,
      fmt::format("--hidden-dropout applies to embeddings and residuals alike; {} is for residuals", dropout.residual));
  check_experts(h);
}

void check_split(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  h.needs("plan.schedule", s.mesh.pipeline == 1 || s.stages.order != Order::gpipe, "GPipe's order",
          "`schedule: 1f1b`, which holds fewer activations");
  h.note("plan.zero_stage", is_fsdp(s) && s.mesh.pipeline > 1,
         "ZeRO 2 and 3 mean Megatron-FSDP, which gathers and reduces in its own way in each pass of a pipeline",
         "Megatron-LM's users combine pipelines with ZeRO 1");
  const bool bf16 = s.compresses() && s.compression.gradients == plan::GradientCompression::bf16;
  h.note("plan.compression.gradients", bf16, "--grad-reduce-in-bf16 also sums in bf16, while the plan sums in fp32");
  h.needs("plan.compression.gradients", !s.compresses() || bf16 || s.low_rank() || s.exchanges_by_node(),
          "gradients that travel in fp16", "`compression: {gradients: bf16}`");
}

void check_memory(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  const bool full = s.recomputation.what == plan::Recompute::full, some = s.recomputation.layers.has_value();
  const plan::Modules modules = s.recompute_of(0).modules;
  h.note("plan.recompute_layers", full && some && s.stages.virtual_stages > 1,
         "--recompute-num-layers counts the layers of each virtual stage", "check its number by hand");
  h.note("plan.recompute_layers", !full && !modules.empty() && some, "selective recomputation applies to all layers");
  h.note("plan.recompute_modules", !full && modules.has(plan::Module::activations),
         "moe_act recomputes the activations of routed experts alone");
  h.needs("plan.offload.activations", s.offload.activations == Space::device,
          "offloaded activations of blocks, as the plan moves them",
          "`offload: {activations: device}`, or try --fine-grained-activation-offloading by hand");
  h.needs("plan.offload.parameters", s.offload.parameters == Space::device, "parameters outside the device",
          "`offload: {parameters: device}`");
  h.needs("plan.offload.optimizer", s.offload.optimizer != Space::nvme, "optimizer states on drives",
          "`offload: {optimizer: host}`");
  h.note("job.training.loss_scaling.factor",
         s.numerics.precision == DType::fp16 && h.training().loss_scaling.factor != 2,
         "loss scales change by a factor of 2");
}

}  // namespace

base::Result<Settings> megatron_settings(Handover h) {
  const plan::PlanSpec& s = h.spec();
  check_model(h);
  check_split(h);
  check_memory(h);
  const int gpus = h.file.cluster.devices_per_node;
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# {} on {} of {}: {}.\n"
      "# Written by `orrery export` from {} for Megatron-LM (flags of its main branch, August 2026).\n"
      "# MEGATRON: its folder. DATA: prefix of a .bin and .idx file, with TOKENIZER_ARGS; without it tokens are made "
      "up, which\n"
      "# is enough to measure. On each node: NODE_RANK=0… MASTER_ADDR=first-node ./this-file\n"
      "set -euo pipefail\n"
      "MEGATRON=${{MEGATRON:?the folder of Megatron-LM}}\n",
      shell_comment(h.model().name), base::count_of(s.mesh.ranks(), "device"), shell_comment(h.file.cluster.name),
      shell_comment(plan::describe(s)), shell_comment(h.path));
  // Overlap of tensor, context and sequence parallelism requires one queue to the device; FSDP several.
  if (s.mesh.tensor * s.mesh.context > 1 && !is_fsdp(s)) text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  if (h.errors.empty())
    for (const char* const group : {"MODEL_ARGS", "PARALLEL_ARGS", "TRAINING_ARGS"}) text += flags_of(h, group);
  text += fmt::format(
      "DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size {})\n"
      "if [[ -n ${{DATA:-}} ]]; then\n"
      "  read -ra tokenizer <<<\"${{TOKENIZER_ARGS:---tokenizer-type NullTokenizer --vocab-size {}}}\"\n"
      "  DATA_ARGS=(--data-path \"$DATA\" --split 100,0,0 \"${{tokenizer[@]}}\")\n"
      "fi\n"
      "exec torchrun --nnodes {} --nproc-per-node {} --node-rank \"${{NODE_RANK:-0}}\" \\\n"
      "  --master-addr \"${{MASTER_ADDR:-localhost}}\" --master-port \"${{MASTER_PORT:-29500}}\" "
      "\"$MEGATRON/pretrain_gpt.py\" \\\n"
      "  \"${{MODEL_ARGS[@]}}\" \"${{PARALLEL_ARGS[@]}}\" \"${{TRAINING_ARGS[@]}}\" \"${{DATA_ARGS[@]}}\" \"$@\"\n",
      h.model().vocab, h.model().vocab, (s.mesh.ranks() + gpus - 1) / gpus, std::min(gpus, s.mesh.ranks()));
  return h.give(std::move(text));
}

}  // namespace orrery::reports
