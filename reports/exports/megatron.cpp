// Megatron-LM: a script of flags in four groups, and torchrun.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/exports/handover.h"
#include "reports/exports/shell.h"

namespace orrery::reports {
namespace {

using models::DType;
using plan::Order;
using plan::Space;

/// One bash array: a flag a line.
class Flags {
 public:
  explicit Flags(std::string name) : text_(std::move(name) + "=(\n") {}
  void add(const char* flag) { text_ += fmt::format("  --{}\n", flag); }
  template <class Value>
  void add(const char* flag, const Value& value) {
    text_ += fmt::format("  --{} {}\n", flag, value);
  }
  void add(const char* flag, const std::string& value) { text_ += fmt::format("  --{} {}\n", flag, shell_word(value)); }
  void add_if(bool on, const char* flag) {
    if (on) add(flag);
  }
  [[nodiscard]] std::string text() const { return text_ + ")\n"; }

 private:
  std::string text_;
};

bool is_fsdp(const plan::PlanSpec& s) {
  return s.states.zero_stage >= 2 && s.mesh.replicas() > 1;
}
bool partitions(const plan::PlanSpec& s) {
  return s.states.zero_stage >= 1 && s.mesh.replicas() > 1;
}

/// Which layers have experts, as a Python expression: "([0]*3+[1]*58)".
std::string expert_layers(const models::Model& m) {
  const models::Experts& e = m.experts;
  if (e.period == 1) return fmt::format("([0]*{}+[1]*{})", e.first_dense, m.layers - e.first_dense);
  if (e.first_dense == 0 && m.layers % e.period == 0)
    return fmt::format("([0]*{}+[1]*1)*{}", e.period - 1, m.layers / e.period);
  std::string out = "[";
  for (std::int64_t i = 0; i < m.layers; ++i) out += fmt::format("{}{}", i > 0 ? "," : "", e.in_layer(i) ? 1 : 0);
  return out + "]";
}

/// Megatron's balancing losses are per layer, and the first is also divided by the experts chosen per token; ours are
/// over all layers together.
void balance_flags(Handover& h, Flags& f) {
  const models::Experts& e = h.model().experts;
  const auto layers = static_cast<double>(e.layers_of(h.model().layers));
  f.add("moe-router-load-balancing-type", e.aux_coefficient > 0 ? "global_aux_loss" : "none");
  if (e.aux_coefficient > 0) f.add("moe-aux-loss-coeff", e.aux_coefficient * static_cast<double>(e.chosen) / layers);
  if (e.z_coefficient > 0) f.add("moe-z-loss-coeff", e.z_coefficient / layers);
  h.note(e.aux_coefficient > 0 && layers > 1,
         "its balancing loss covers each layer separately, ours all layers together");
  if (e.balance_bias) {
    f.add("moe-router-enable-expert-bias");
    f.add("moe-router-bias-update-rate", e.bias_rate);
  }
}

void expert_flags(Handover& h, Flags& f) {
  using models::Scores;
  const models::Experts& e = h.model().experts;
  const plan::PlanSpec& s = h.spec();
  if (!e.any()) return;
  const bool one = e.chosen == 1, sigmoid = e.scores == Scores::sigmoid;
  h.needs(!e.router_bias && !e.expert_bias, "biases of routers and experts",
          "experts without biases, or gpt-oss's own recipe");
  h.needs(e.scores != Scores::sparse_mixer, "routers that draw their experts", "`scores: softmax_chosen`");
  h.needs(e.narrow == 0, "experts that work on narrower copies of tokens", "`narrow: 0`");
  h.needs(!s.tokens.encoded(), "rows of tokens in fewer bits", "no `tokens`");
  h.needs(!sigmoid || e.normalised || one, "weights from sigmoids that are not divided by their sum",
          "`normalised: true`");
  h.needs(!one || (!e.normalised && e.scores != Scores::softmax_chosen), "a weight of 1 for a token's one expert",
          "`normalised: false`");
  f.add("num-experts", e.count);
  f.add("moe-router-topk", e.chosen);
  f.add("moe-ffn-hidden-size", e.hidden);
  if (e.layers_of(h.model().layers) < h.model().layers) f.add("moe-layer-freq", expert_layers(h.model()));
  if (e.shared > 0) f.add("moe-shared-expert-intermediate-size", e.shared);
  f.add_if(e.shared_gate, "moe-shared-expert-gate");
  if (sigmoid) f.add("moe-router-score-function", "sigmoid");
  f.add_if(e.scores == Scores::softmax && !e.normalised, "moe-router-pre-softmax");
  if (e.weight_scale != 1) f.add("moe-router-topk-scaling-factor", e.weight_scale);
  if (e.groups > 1) {
    f.add("moe-router-num-groups", e.groups);
    f.add("moe-router-group-topk", e.groups_chosen);
    // There, a group's score is the sum of its best experts, as many as a token takes from each group.
    h.note(e.chosen / e.groups_chosen != (e.groups_by_two ? 2 : 1), "it chooses groups of experts by other sums");
  }
  f.add_if(e.scales_input, "moe-apply-probs-on-input");
  f.add("moe-router-dtype", "fp32");
  balance_flags(h, f);
  if (e.capacity_factor > 0) {
    f.add("moe-expert-capacity-factor", e.capacity_factor);
    h.note(true, "its capacity limits a micro-batch's tokens, by weight; ours a sequence's, by order");
  }
  f.add("moe-grouped-gemm");
  f.add("moe-token-dispatcher-type", "alltoall");
  f.add("expert-model-parallel-size", s.mesh.expert);
  f.add("expert-tensor-parallel-size", s.mesh.expert_ways());
}

void latent_flags(Handover& h, Flags& f) {
  const models::LatentAttention& l = h.model().latent;
  if (!l.any()) return;
  f.add("multi-latent-attention");
  if (l.q_rank > 0) f.add("q-lora-rank", l.q_rank);
  f.add("kv-lora-rank", l.kv_rank);
  f.add("qk-head-dim", l.nope);
  f.add("qk-pos-emb-head-dim", l.rope);
  f.add("v-head-dim", l.value);
  f.add("qk-layernorm");
}

/// Megatron-Core's rotary_pos_embedding.py has Llama 3.1's numbers, except the factor.
void rope_scaling_flags(Handover& h, Flags& f) {
  const models::RopeScaling& s = h.model().rope_scaling;
  switch (s.kind) {
    case models::RopeKind::none: return;
    case models::RopeKind::linear:
      h.needs(s.factor == std::floor(s.factor), "rotary positions scaled by a fraction", "a whole `factor`");
      return f.add("rotary-seq-len-interpolation-factor", static_cast<std::int64_t>(s.factor));
    case models::RopeKind::longrope:
      return h.needs(false, "rotary pairs with a divisor each", "leave `rope_scaling` out");
    case models::RopeKind::llama3: {
      constexpr std::int64_t kTokens = 8192;
      h.needs(s.original == kTokens && s.low == 1 && s.high == 4, "scaled rotary positions with other bounds",
              "{type: llama3, original: 8192, low: 1, high: 4}");
      f.add("use-rope-scaling");
      return f.add("rope-scaling-factor", s.factor);
    }
    case models::RopeKind::yarn: {
      // Only latent attention has it, with DeepSeek's numbers except the factor and the weight.
      constexpr std::int64_t kTokens = 4096;
      constexpr double kFast = 32;
      h.needs(h.model().latent.any() && s.original == kTokens && s.low == 1 && s.high == kFast && s.whole_pairs &&
                  s.attention == 1 && s.score_weight > 0,
              "YaRN but for latent attention, and with other numbers than DeepSeek's",
              "leave `rope_scaling` out, or write {type: yarn, original: 4096, low: 1, high: 32, attention: 1, "
              "score_weight: 1}");
      f.add("rope-type", "yarn");
      f.add("rotary-scaling-factor", s.factor);
      f.add("mscale", s.score_weight);
      return f.add("mscale-all-dim", s.score_weight);
    }
  }
}

std::string model_flags(Handover& h) {
  const models::Model& m = h.model();
  const plan::PlanSpec& s = h.spec();
  const models::Dropout dropout = h.dropout();
  h.needs(m.causal && m.pre_norm && !m.next_sentence, "BERT (its trainer has left the main branch)",
          "GPTs and Llamas can be exported");
  h.needs(m.activation != models::Activation::relu, "ReLU as it is", "gelu, or swiglu");
  h.needs(m.activation != models::Activation::clamped_swiglu, "a clamped SwiGLU", "swiglu, or gelu");
  h.needs(m.activation != models::Activation::geglu, "a gate with GELU", "swiglu, or gelu");
  h.needs(!m.parallel && !m.output_norm && !m.embedding_norm && !m.scaled_embedding,
          "attention parallel to the MLP, norms of outputs or embeddings, and scaled embeddings",
          "GPTs, Llamas, Qwens and Nemotrons can be exported");
  h.needs(m.activation != models::Activation::xielu, "xIELU", "another activation");
  h.needs(m.embedding_scale == 1 && m.residual_scale == 1 && m.logit_scale == 1,
          "scales of embeddings, of what is added to the residual, or of logits",
          "GPTs, Llamas, Qwens and Nemotrons can be exported");
  h.needs(m.attention_bias && !m.out_bias && !m.head_bias && !m.joint_qk_norm && !m.late_qk_norm,
          "biases of the MLP, of attention's last product or of the head alone, and norms over all heads of q and k or "
          "after their rotation",
          "GPTs, Llamas, Qwens and Nemotrons can be exported");
  h.needs(m.positions != models::Positions::alibi && m.position_offset == 0 && m.window == 0 && m.query_scale == 0 &&
              m.attention_cap == 0 && m.logit_cap == 0,
          "ALiBi, position offsets, windows, caps, or attention scales of its own",
          "GPTs, Llamas, Qwens and Nemotrons can be exported");
  h.needs(m.norm_weight && (m.normalisation == models::Normalisation::rms_norm || m.norm_bias),
          "norms without weights, or LayerNorms without biases", "RMSNorm, or LayerNorms with biases, with weights");
  h.needs(!m.indexer.any(), "attention that reads chosen tokens alone", "models without `indexer`");
  h.needs(!m.attention_gate, "a gate of attention's output", "models without `attention_gate`");
  h.needs(m.pattern.empty(), "state spaces and patterns of layers", "models without `pattern`");
  h.needs(!m.attention_sinks, "learned attention logits beside the scores", "models without `attention_sinks`");
  h.note(
      dropout.embedding != dropout.residual,
      fmt::format("--hidden-dropout applies to embeddings and residuals alike; {} is for residuals", dropout.residual));
  Flags f("MODEL_ARGS");
  f.add("num-layers", m.layers);
  f.add("hidden-size", m.hidden);
  f.add("ffn-hidden-size", m.ffn_hidden);
  f.add("num-attention-heads", m.heads);
  if (!m.latent.any()) f.add("kv-channels", m.head_dim);
  if (m.kv_heads != m.heads) {
    f.add("group-query-attention");
    f.add("num-query-groups", m.kv_heads);
  }
  f.add("seq-length", s.shape.sequence);
  f.add("max-position-embeddings", std::max(m.max_sequence, s.shape.sequence));
  if (m.positions == models::Positions::rope) {
    f.add("position-embedding-type", "rope");
    f.add("rotary-base", static_cast<std::int64_t>(std::llround(m.rope_theta)));
    if (m.rotary_share < 1) f.add("rotary-percent", m.rotary_share);
    if (m.unrotated_period > 0) f.add("no-rope-freq", m.unrotated_period);
    rope_scaling_flags(h, f);
  } else {
    f.add("position-embedding-type", m.positions == models::Positions::none ? "none" : "learned_absolute");
  }
  f.add("normalization", m.normalisation == models::Normalisation::rms_norm ? "RMSNorm" : "LayerNorm");
  f.add("norm-epsilon", m.norm_epsilon);
  f.add_if(m.activation == models::Activation::swiglu, "swiglu");
  f.add_if(m.activation == models::Activation::squared_relu, "squared-relu");
  f.add_if(m.qkv_bias && !m.bias, "add-qkv-bias");
  f.add_if(m.qk_norm, "qk-layernorm");
  if (m.activation == models::Activation::gelu) {
    // The fusion with the bias has the tanh form; without it the exact one is the default.
    if (m.gelu == models::Gelu::erf) f.add("no-bias-gelu-fusion");
    f.add_if(m.gelu == models::Gelu::tanh && !m.bias, "openai-gelu");
  }
  f.add_if(!m.bias, "disable-bias-linear");
  f.add_if(!m.tied_embeddings, "untie-embeddings-and-output-weights");
  f.add("make-vocab-size-divisible-by", s.numerics.vocab_multiple);
  f.add("init-method-std", m.initial_stddev);
  f.add("attention-dropout", dropout.attention);
  f.add("hidden-dropout", dropout.residual);
  latent_flags(h, f);
  expert_flags(h, f);
  if (m.further.any()) {
    f.add("mtp-num-layers", m.further.modules);
    f.add("mtp-loss-scaling-factor", m.further.weight);
  }
  return f.text();
}

/// "Et*3|t*4|t*4|t*3L": stages in model order; virtual stages go round after round.
std::string layout_of(const plan::Plan& plan) {
  const plan::PlanSpec& s = plan.spec();
  std::string out = "E";
  for (int place = 0; place < s.places(); ++place) {
    const std::int64_t layers = plan.chunk_layers(s.stage_at(place), place / s.mesh.pipeline);
    if (place > 0) out += '|';
    if (layers > 0) out += fmt::format("t*{}", layers);
  }
  return out + "L";
}

bool is_even(const plan::Plan& plan) {
  const plan::PlanSpec& s = plan.spec();
  for (int place = 0; place < s.places(); ++place)
    if (plan.chunk_layers(s.stage_at(place), place / s.mesh.pipeline) != plan.chunk_layers(plan::kFirstStage, 0))
      return false;
  return true;
}

void pipeline_flags(Handover& h, Flags& f) {
  const plan::PlanSpec& s = h.spec();
  f.add("pipeline-model-parallel-size", s.mesh.pipeline);
  if (s.mesh.pipeline == 1) return;
  h.needs(s.stages.order != Order::gpipe, "GPipe's order", "`schedule: 1f1b`, which holds fewer activations");
  if (!is_even(h.plan))
    f.add("pipeline-model-parallel-layout", layout_of(h.plan));
  else if (s.stages.virtual_stages > 1)
    f.add("num-virtual-stages-per-pipeline-rank", s.stages.virtual_stages);
}

void sharding_flags(Handover& h, Flags& f) {
  const plan::PlanSpec& s = h.spec();
  const bool early = s.reduces_early() || is_fsdp(s);
  f.add_if(partitions(s), "use-distributed-optimizer");
  if (is_fsdp(s)) {
    f.add("use-megatron-fsdp");
    f.add("data-parallel-sharding-strategy", s.states.zero_stage == 2 ? "optim_grads" : "optim_grads_params");
    f.add("ckpt-format", "fsdp_dtensor");
    h.note(s.mesh.pipeline > 1,
           "ZeRO 2 and 3 mean Megatron-FSDP, which gathers and reduces in its own way in each pass of a pipeline",
           "Megatron-LM's users combine pipelines with ZeRO 1");
  }
  if (partitions(s) && s.sub_groups() > 1) f.add("num-distributed-optimizer-instances", s.sub_groups());
  f.add_if(early, "overlap-grad-reduce");
  f.add_if(early && partitions(s), "overlap-param-gather");
  if (s.compresses() && s.compression.gradients == plan::GradientCompression::bf16) {
    f.add("grad-reduce-in-bf16");
    h.note(true, "--grad-reduce-in-bf16 also sums in bf16, while the plan sums in fp32");
  }
  h.needs(!s.compresses() || s.compression.gradients == plan::GradientCompression::bf16 || s.low_rank() ||
              s.exchanges_by_node(),
          "gradients that travel in fp16", "`compression: {gradients: bf16}`");
}

void memory_flags(Handover& h, Flags& f) {
  const plan::PlanSpec& s = h.spec();
  if (s.recomputation.what == plan::Recompute::full) {
    f.add("recompute-granularity", "full");
    const bool some = s.recomputation.layers.has_value();
    f.add("recompute-method", some ? "block" : "uniform");
    f.add("recompute-num-layers", s.recomputation.layers.value_or(1));
    if (s.recomputation.partition_checkpoints) f.add("distribute-saved-activations");
    h.note(some && s.stages.virtual_stages > 1, "--recompute-num-layers counts the layers of each virtual stage",
           "check its number by hand");
  } else if (const plan::Modules modules = s.recompute_of(0).modules; !modules.empty()) {
    h.note(s.recomputation.layers.has_value(), "selective recomputation applies to all layers");
    f.add("recompute-granularity", "selective");
    constexpr std::array kTheirs = {"core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe"};
    std::vector<const char*> names;
    for (std::size_t i = 0; i < kTheirs.size(); ++i)
      if (modules.has(static_cast<plan::Module>(i))) names.push_back(kTheirs.at(i));
    h.note(modules.has(plan::Module::activations), "moe_act recomputes the activations of routed experts alone");
    f.add("recompute-modules", fmt::format("{}", fmt::join(names, " ")));
  }
  f.add("attention-backend", s.numerics.flash ? "auto" : "unfused");
  h.needs(s.offload.activations == Space::device, "offloaded activations of blocks, as the plan moves them",
          "`offload: {activations: device}`, or try --fine-grained-activation-offloading by hand");
  h.needs(s.offload.parameters == Space::device, "parameters outside the device", "`offload: {parameters: device}`");
  h.needs(s.offload.optimizer != Space::nvme, "optimizer states on drives", "`offload: {optimizer: host}`");
  if (s.offload.optimizer == Space::host) {
    f.add("optimizer-cpu-offload");
    f.add("optimizer-offload-fraction", "1.0");
    f.add("use-precision-aware-optimizer");
  }
}

std::string parallel_flags(Handover& h) {
  const plan::PlanSpec& s = h.spec();
  Flags f("PARALLEL_ARGS");
  f.add("micro-batch-size", s.shape.micro_batch);
  f.add("global-batch-size", s.shape.batch);
  f.add("tensor-model-parallel-size", s.mesh.tensor);
  f.add_if(s.mesh.shards_rows(), "sequence-parallel");
  f.add("context-parallel-size", s.mesh.context);
  if (s.mesh.context > 1) f.add("cp-comm-type", "p2p");
  pipeline_flags(h, f);
  sharding_flags(h, f);
  memory_flags(h, f);
  if (s.numerics.precision == DType::bf16 || s.numerics.precision == DType::fp8 || s.numerics.precision == DType::fp4)
    f.add("bf16");
  if (s.numerics.precision == DType::fp16) {
    f.add("fp16");
    f.add("initial-loss-scale", h.training().loss_scaling.initial);
    f.add("loss-scale-window", h.training().loss_scaling.interval);
    f.add("hysteresis", 1);
    h.note(h.training().loss_scaling.factor != 2, "loss scales change by a factor of 2");
  }
  if (s.numerics.precision == DType::fp8) {
    f.add("fp8-format", "hybrid");
    f.add("fp8-recipe", "tensorwise");
  }
  if (s.numerics.precision == DType::fp4) {
    f.add("fp4-format", "e2m1");
    f.add("fp4-recipe", "nvfp4");
  }
  return f.text();
}

const char* decay_of(plan::Decay decay) {
  switch (decay) {
    case plan::Decay::none: return "constant";
    case plan::Decay::cosine: return "cosine";
    case plan::Decay::linear: return "linear";
    case plan::Decay::inverse_square_root: return "inverse-square-root";
    case plan::Decay::wsd: return "WSD";
  }
  return "constant";
}

std::string training_flags(Handover& h) {
  const plan::Training& t = h.training();
  Flags f("TRAINING_ARGS");
  f.add("train-iters", t.steps);
  f.add("seed", t.seed);
  const plan::OptimizerTraits& optimizer = plan::traits_of(t.optimizer.kind);
  f.add("optimizer", optimizer.megatron);
  f.add("lr", t.optimizer.learning_rate);
  f.add("min-lr", t.schedule.minimum);
  f.add("lr-decay-style", decay_of(t.schedule.decay));
  f.add("lr-warmup-iters", t.schedule.warmup_steps);
  f.add("lr-decay-iters", t.steps);
  if (t.schedule.decay == plan::Decay::wsd) {
    f.add("lr-wsd-decay-style", "linear");
    f.add("lr-wsd-decay-iters",
          t.schedule.decay_steps > 0 ? t.schedule.decay_steps : std::max<std::int64_t>(1, t.steps / 10));
  }
  f.add("weight-decay", t.optimizer.weight_decay);
  const auto own = [&](const char* key, double value) {
    f.add(fmt::format("{}-{}", optimizer.megatron, key).c_str(), value);
  };
  if (optimizer.keys.momentum) own("momentum", t.optimizer.momentum);
  if (optimizer.keys.betas) {
    own("beta1", t.optimizer.beta1);
    own("beta2", t.optimizer.beta2);
  }
  if (optimizer.keys.epsilon) own("eps", t.optimizer.epsilon);
  f.add("clip-grad", t.clip_norm.value_or(0));
  f.add("eval-interval", t.evaluation ? t.evaluation->every : t.steps + 1);
  f.add("eval-iters", t.evaluation ? t.evaluation->batches : 0);
  f.add("log-interval", 1);
  f.add("log-throughput");
  return f.text();
}

}  // namespace

base::Result<Settings> megatron_settings(Handover h) {
  const plan::PlanSpec& s = h.spec();
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
  text += model_flags(h) + parallel_flags(h) + training_flags(h);
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
