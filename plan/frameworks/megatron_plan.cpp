// Megatron-LM's flags once they are read: what follows from several of them, and from its defaults.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/frameworks/layouts.h"
#include "plan/frameworks/settings.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

using models::RopeKind;

double open_of(const Draft& d, const char* key, double otherwise) {
  const auto at = d.open.find(key);
  return at == d.open.end() ? otherwise : at->second;
}
bool is_open(const Draft& d, const char* key) {
  return open_of(d, key, 0) != 0;
}
std::string word_of(const Draft& d, const char* key) {
  const auto at = d.words.find(key);
  return at == d.words.end() ? std::string() : at->second;
}

/// Undoes a product with a quotient of whole numbers: 12 digits are what such files have at most.
double rounded(double value) {
  double out = value;
  (void)read_number(fmt::format("{:.12g}", value), out);
  return out;
}

void finish_model(Reading& r, Draft& d, const base::Location& where) {
  models::Model& m = d.model;
  const auto must = [&](std::int64_t value, const char* key) {
    if (value <= 0 && !r.failed())
      r.error("E0654", where, fmt::format("--{} is not given: without it there is no model", key),
              "is it set by another file, or by a variable? --set gives variables and settings");
  };
  must(m.layers, "num-layers");
  must(m.hidden, "hidden-size");
  must(m.heads, "num-attention-heads");
  if (m.layers <= 0 || m.hidden <= 0 || m.heads <= 0) return;
  if (m.ffn_hidden == 0) {
    // arguments.py: with a gate, two thirds of four times the width, in steps of 64
    m.ffn_hidden = models::traits_of(m.activation).gated ? m.hidden * 4 * 2 / 3 / 64 * 64 : 4 * m.hidden;
    r.assume(fmt::format("ffn-hidden-size {}, Megatron-LM's default", m.ffn_hidden));
  }
  if (m.head_dim == 0) m.head_dim = m.hidden / m.heads;
  // num_query_groups is 1 where group-query-attention comes alone, and means nothing without it
  m.kv_heads = is_open(d, "group-query-attention") ? std::max<std::int64_t>(m.kv_heads, 1) : m.heads;
  if (is_open(d, "no-position-embedding") && m.positions == models::Positions::learned)
    m.positions = models::Positions::none;
  const bool tanh = is_open(d, "openai-gelu") || (m.bias && !is_open(d, "no-bias-gelu-fusion"));
  m.gelu = tanh ? models::Gelu::tanh : models::Gelu::erf;
  if (m.normalisation == models::Normalisation::rms_norm || !m.bias) m.norm_bias = m.bias;
  if (m.normalisation == models::Normalisation::layer_norm) m.norm_bias = true;
  if (is_open(d, "use-rope-scaling"))
    m.rope_scaling = {.kind = RopeKind::llama3,
                      .factor = open_of(d, "rope-scaling-factor", 8),
                      .original = 8192,
                      .low = 1,
                      .high = 4};
  if (const double factor = open_of(d, "rotary-seq-len-interpolation-factor", 0); factor > 1)
    m.rope_scaling = {.kind = RopeKind::linear, .factor = factor};
  if (is_open(d, "multi-latent-attention")) {
    const auto width = [&](const char* key, double usual) { return static_cast<std::int64_t>(open_of(d, key, usual)); };
    m.latent.kv_rank = width("kv-lora-rank", 32);
    m.latent.nope = width("qk-head-dim", 128);
    m.latent.rope = width("qk-pos-emb-head-dim", 64);
    m.latent.value = width("v-head-dim", 128);
    m.head_dim = m.latent.nope + m.latent.rope;
    m.kv_heads = m.heads;
    const double factor = open_of(d, "rotary-scaling-factor", 40);
    if (word_of(d, "rope-type") == "yarn" ||
        (word_of(d, "rope-type").empty() && d.open.contains("rotary-scaling-factor")))
      m.rope_scaling = {.kind = RopeKind::yarn,
                        .factor = factor,
                        .original = 4096,
                        .low = 1,
                        .high = 32,
                        .score_weight = open_of(d, "mscale-all-dim", 0)};
  } else {
    m.latent = {};
    m.qk_norm = is_open(d, "qk-layernorm");
  }
  if (m.vocab == 0 && is_open(d, "padded-vocab-size")) m.vocab = static_cast<std::int64_t>(d.open["padded-vocab-size"]);
  if (const double padded = open_of(d, "pad-vocab-size-to", 0); padded >= 1) {
    m.vocab = static_cast<std::int64_t>(padded);
    d.spec.numerics.vocab_multiple = 1;
  }
  if (m.vocab == 0) {
    const std::string tokenizer = word_of(d, "tokenizer-type");
    if (tokenizer == "GPT2BPETokenizer" || (tokenizer.empty() && d.open.contains("merge-file")))
      m.vocab = 50257;
    else if (tokenizer == "Llama2Tokenizer")
      m.vocab = 32000;
    if (m.vocab > 0)
      r.assume(fmt::format("a vocabulary of {}, that of {}", m.vocab,
                           tokenizer.empty() ? "GPT-2's byte pairs (--merge-file)" : tokenizer));
    else
      r.error("E0654", where, "the vocabulary is not given: it is in the tokenizer's files", "--set vocab-size=32000");
  }
  if (m.max_sequence == 0) m.max_sequence = d.spec.shape.sequence;
}

void finish_experts(Reading& r, Draft& d, const base::Location& where) {
  models::Model& m = d.model;
  models::Experts& e = m.experts;
  if (!e.any()) {
    e = {};
    d.spec.mesh.expert = 1;
    return;
  }
  e.chosen = static_cast<std::int64_t>(open_of(d, "moe-router-topk", 2));
  if (e.hidden == 0) e.hidden = m.ffn_hidden;
  if (word_of(d, "moe-router-score-function") == "sigmoid") {
    e.scores = models::Scores::sigmoid;
    e.normalised = e.chosen > 1;
  } else {
    e.scores = models::Scores::softmax;
    e.normalised = !is_open(d, "moe-router-pre-softmax");
  }
  if (e.groups > 1) e.groups_by_two = e.groups_chosen > 0 && e.chosen / e.groups_chosen >= 2;
  e.balance_bias = is_open(d, "moe-router-enable-expert-bias");
  if (e.balance_bias) e.bias_rate = open_of(d, "moe-router-bias-update-rate", 1e-3);
  if (const std::string layers = word_of(d, "moe-layer-freq"); !layers.empty()) {
    const auto with = layers_of_pattern(layers, m.layers);
    if (!with || !e.place(*with))
      r.error("E0653", where,
              fmt::format("--moe-layer-freq {}: experts in the first or in every n-th layer cannot say this",
                          base::quoted(layers)),
              "([0]*3+[1]*58), or ([0]*1+[1]*1)*16");
  }
  const auto expert_layers = static_cast<double>(std::max<std::int64_t>(1, e.layers_of(m.layers)));
  const bool balances = word_of(d, "moe-router-load-balancing-type").find("aux_loss") != std::string::npos ||
                        word_of(d, "moe-router-load-balancing-type").empty();
  if (balances)
    e.aux_coefficient = rounded(open_of(d, "moe-aux-loss-coeff", 0) * expert_layers / static_cast<double>(e.chosen));
  e.z_coefficient = rounded(open_of(d, "moe-z-loss-coeff", 0) * expert_layers);
  const auto ways = static_cast<int>(open_of(d, "expert-tensor-parallel-size", d.spec.mesh.tensor));
  d.spec.mesh.expert_tensor = ways == d.spec.mesh.tensor ? 0 : ways;
}

void finish_stages(Reading& r, Draft& d, const base::Location& where) {
  Stages& st = d.spec.stages;
  const std::int64_t layers = d.model.layers;
  const int pipeline = d.spec.mesh.pipeline;
  st.order = Order::one_f_one_b;
  if (pipeline == 1) return;
  if (const double chunks = open_of(d, "num-virtual-stages-per-pipeline-rank", 0); chunks > 0)
    st.virtual_stages = static_cast<int>(chunks);
  if (!product_up_to(kMostLayers, {pipeline, st.virtual_stages}))
    return r.error("E0653", where,
                   fmt::format("{} stages of {} chunks are more than a model has layers", pipeline, st.virtual_stages),
                   "");
  const double first = open_of(d, "decoder-first-pipeline-num-layers", -1);
  const double last = open_of(d, "decoder-last-pipeline-num-layers", -1);
  if (const double each = open_of(d, "num-layers-per-virtual-pipeline-stage", 0); each > 0) {
    const std::int64_t chunk = static_cast<std::int64_t>(each) * pipeline;
    if (layers % chunk != 0)
      r.error("E0653", where,
              fmt::format("{} layers do not divide into {} stages of chunks of {}", layers, pipeline, each), "");
    else
      st.virtual_stages = static_cast<int>(layers / chunk);
  }
  if (const std::string layout = word_of(d, "pipeline-model-parallel-layout"); !layout.empty()) {
    const auto stages = stages_of_layout(layout);
    if (!stages || stages->empty() || static_cast<int>(stages->size()) % pipeline != 0)
      r.error(
          "E0653", where,
          fmt::format("--pipeline-model-parallel-layout {} is not read as {} stages", base::quoted(layout), pipeline),
          "Et*3|t*4|t*4|t*3L");
    else
      st.layers_per_stage = *stages, st.virtual_stages = static_cast<int>(stages->size()) / pipeline;
  } else if (first >= 0 || last >= 0) {
    const int others = pipeline - (first >= 0 ? 1 : 0) - (last >= 0 ? 1 : 0);
    const std::int64_t rest = layers - static_cast<std::int64_t>(std::max(first, 0.0) + std::max(last, 0.0));
    const int chunks = st.virtual_stages;
    if (rest < 0 || (others > 0 ? rest % (others * chunks) != 0 : rest != 0) ||
        std::fmod(std::max(first, 0.0), chunks) != 0 || std::fmod(std::max(last, 0.0), chunks) != 0)
      return r.error("E0653", where, "the layers that the first and the last stage leave do not divide evenly", "");
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int stage = 0; stage < pipeline; ++stage) {
        const bool begins = stage == 0 && first >= 0, ends = stage == pipeline - 1 && last >= 0;
        const std::int64_t here = begins ? static_cast<std::int64_t>(first)
                                  : ends ? static_cast<std::int64_t>(last)
                                         : rest / others;
        st.layers_per_stage.push_back(here / chunks);
      }
  }
  const bool front = is_open(d, "account-for-embedding-in-pipeline-split");
  const bool back = is_open(d, "account-for-loss-in-pipeline-split");
  st.ends_as_layers = front && back;
  if (front != back)
    r.assume("that only one of embedding and loss counts as a layer in the pipeline's split is not carried over");
}

void finish_states(Reading& r, Draft& d) {
  PlanSpec& s = d.spec;
  const bool fsdp = is_open(d, "use-megatron-fsdp"), deepspeed = is_open(d, "deepspeed");
  if (fsdp) {
    const std::string how = word_of(d, "data-parallel-sharding-strategy");
    s.states.zero_stage = how == "optim_grads_params" ? 3 : how == "optim_grads" ? 2 : how == "optim" ? 1 : 0;
  } else if (is_open(d, "use-torch-fsdp2")) {
    s.states.zero_stage = 3;
  } else if (is_open(d, "use-distributed-optimizer")) {
    s.states.zero_stage = 1;
  }
  if (s.mesh.replicas() == 1 && s.states.zero_stage > 0) {
    s.states.zero_stage = 0;
    r.assume("nothing is partitioned, as there is one replica");
  }
  const auto copies = static_cast<int>(open_of(d, "num-distributed-optimizer-instances", 1));
  if (copies > 1 && s.states.zero_stage > 0 && s.mesh.replicas() % copies == 0)
    s.states.zero_group = s.mesh.replicas() / copies;
  s.states.overlap_gradients = is_open(d, "overlap-grad-reduce") && (s.states.zero_stage < 2 || s.sub_groups() > 1);
  if (s.mesh.replicas() == 1) s.states.overlap_gradients = false;
  if (s.mesh.replicas() == 1) s.compression.gradients = GradientCompression::none;
  s.mesh.sequence_parallel = s.mesh.sequence_parallel && s.mesh.tensor > 1;
  const bool old = deepspeed || is_open(d, "use-legacy-models");
  s.numerics.flash = open_of(d, "flash", old ? 0 : 1) != 0;
  if (old && !d.open.contains("flash")) r.assume("attention without a flash kernel, as no flag asks for one");
  if (d.stack.empty())
    d.stack = deepspeed                         ? "megatron-deepspeed-2022"
              : is_open(d, "use-legacy-models") ? "megatron-lm"
              : fsdp                            ? "megatron-fsdp"
              : is_open(d, "use-torch-fsdp2")   ? "pytorch-fsdp"
                                                : "megatron-core";
}

void finish_recomputation(Reading& r, Draft& d) {
  Recomputation& c = d.spec.recomputation;
  const std::string granularity = word_of(d, "recompute-granularity");
  if (granularity.empty()) {
    c = {};
    return;
  }
  if (granularity == "selective") {
    c.what = Recompute::selective;
    c.layers.reset();
    c.partition_checkpoints = false;
    // `core` is what the word means alone
    if (c.modules == Modules().with(Module::core)) c.modules = {};
    return;
  }
  c.what = Recompute::full;
  c.modules = {};
  if (c.partition_checkpoints && d.spec.mesh.tensor == 1) {
    c.partition_checkpoints = false;
    r.assume("checkpoints stay whole: tensor-parallel ranks divide them among them, and here is one");
  }
  const auto count = static_cast<std::int64_t>(open_of(d, "recompute-num-layers", 1));
  if (word_of(d, "recompute-method") == "block")
    c.layers = count;
  else if (count > 1)
    r.assume(fmt::format("every layer keeps a checkpoint, not every {}th (recompute-num-layers)", count));
}

void finish_training(Reading& r, Draft& d) {
  Training& t = d.training;
  PlanSpec& s = d.spec;
  if (!d.open.contains("micro-batch-size"))
    r.assume(
        fmt::format("micro-batches of {}, as no flag says: --set micro-batch-size gives others", s.shape.micro_batch));
  if (!d.open.contains("train-iters") && d.samples == 0)
    r.assume(fmt::format("{} steps, as no flag says: --set train-iters gives others", t.steps));
  if (!d.open.contains("lr")) r.assume("a learning rate of 0.0001, as no flag says: --set lr gives another");
  if (const double batch = open_of(d, "global-batch-size", 0); batch > 0) {
    s.shape.batch = static_cast<std::int64_t>(batch);
  } else {
    s.shape.batch = s.shape.micro_batch * s.mesh.data;
    r.assume(fmt::format("a global batch of {}: one micro-batch a replica, Megatron-LM's default", s.shape.batch));
  }
  const auto steps_of = [&](double samples) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(samples / static_cast<double>(s.shape.batch)));
  };
  if (d.samples > 0 && !d.open.contains("train-iters")) t.steps = steps_of(static_cast<double>(d.samples));
  if (const double samples = open_of(d, "lr-warmup-samples", 0); samples > 0)
    t.schedule.warmup_steps = steps_of(samples);
  const double decay = open_of(d, "lr-decay-iters", static_cast<double>(t.steps));
  if (const double share = open_of(d, "lr-warmup-fraction", 0); share > 0)
    t.schedule.warmup_steps = static_cast<std::int64_t>(share * decay);
  if (decay != static_cast<double>(t.steps) || d.open.contains("lr-decay-samples"))
    r.assume("the learning rate decays until the run's end");
  const double weight_decay = open_of(d, "weight-decay", 0.01);
  std::string kind = word_of(d, "optimizer");
  if (kind.empty()) kind = "adam";
  t.optimizer = usual(kind == "sgd"       ? OptimizerKind::sgd
                      : kind == "muon"    ? OptimizerKind::muon
                      : kind == "lion"    ? OptimizerKind::lion
                      : weight_decay == 0 ? OptimizerKind::adam
                                          : OptimizerKind::adamw);
  t.optimizer.weight_decay = weight_decay;
  t.optimizer.learning_rate = open_of(d, "lr", 1e-4);
  if (kind == "adam") {
    t.optimizer.beta1 = open_of(d, "adam-beta1", 0.9);
    t.optimizer.beta2 = open_of(d, "adam-beta2", 0.999);
    t.optimizer.epsilon = open_of(d, "adam-eps", 1e-8);
  } else if (kind == "sgd") {
    t.optimizer.momentum = open_of(d, "sgd-momentum", 0.9);
  }
  if (t.schedule.minimum > t.optimizer.learning_rate) t.schedule.minimum = t.optimizer.learning_rate;
}

}  // namespace

Draft megatron_defaults() {
  Draft d;
  d.model.positions = models::Positions::learned;
  d.model.dropout = {0.1, 0.1, 0.1};
  d.spec.shape.sequence = 0;
  d.spec.shape.batch = 0;
  d.training.clip_norm = 1.0;
  d.training.loss_scaling = {4294967296.0, 1000, 2};
  d.training.schedule.decay = Decay::linear;
  d.training.seed = 1234;
  return d;
}

namespace {

/// Megatron-LM's flags of software that mean something only together.
void finish_software(Reading& r, Draft& d) {
  const auto word = [&](const char* key, const char* otherwise) {
    const auto at = d.words.find(key);
    return at == d.words.end() ? std::string(otherwise) : at->second;
  };
  if (is_open(d, "cross-entropy-loss-fusion") && word("cross-entropy-fusion-impl", "native") == "te")
    d.software.cross_entropy = LossKernel::fused;
  const double offloaded = open_of(d, "cpu-offloading-num-layers", 0);
  if (offloaded > 0) d.software.cpu_offloading_layers = static_cast<std::int64_t>(offloaded);
  // The backend is the flex dispatcher's; DeepEP unless another is named.
  const bool flex = word("moe-token-dispatcher-type", "") == "flex" && d.model.experts.any();
  if (!flex) d.software.token_dispatcher.reset();
  if (flex && !d.software.token_dispatcher) d.software.token_dispatcher = TokenDispatcher::deepep;
  if (!is_open(d, "use-precision-aware-optimizer")) return;
  constexpr std::int64_t kEight = 8, kHalf = 16, kSingle = 32;
  const auto bits = [&](const char* key) {
    const std::string said = word(key, "fp32");
    return said == "fp8" ? kEight : said == "fp16" || said == "bf16" ? kHalf : kSingle;
  };
  const std::int64_t first = bits("exp-avg-dtype"), second = bits("exp-avg-sq-dtype");
  if (first == second && first != kSingle) d.software.moment_bits = first;
  if (first != second) r.assume("both of Adam's moments in fp32: there is no word for two types");
}

}  // namespace

void finish_megatron(Reading& r, Draft& d, const base::Location& where) {
  PlanSpec& s = d.spec;
  if (s.shape.sequence == 0) {
    if (!r.failed()) r.error("E0654", where, "--seq-length is not given", "--set seq-length=4096");
    return;
  }
  finish_model(r, d, where);
  const auto degrees = product_up_to(kMostRanks, {s.mesh.tensor, s.mesh.pipeline, s.mesh.context});
  const auto ways = static_cast<std::int64_t>(open_of(d, "expert-tensor-parallel-size", s.mesh.tensor));
  if (!degrees || !product_up_to(kMostRanks, {s.mesh.expert, ways, s.mesh.pipeline}))
    return r.error("E0653", where,
                   fmt::format("tensor {} x pipeline {} x context {}, or experts {} x {} ways, are more ranks than any "
                               "run has",
                               s.mesh.tensor, s.mesh.pipeline, s.mesh.context, s.mesh.expert, ways),
                   "");
  const std::int64_t inner = *degrees;
  if (d.ranks > 0 && d.ranks % inner != 0)
    return r.error("E0654", where,
                   fmt::format("{} ranks do not divide by tensor {} x pipeline {} x context {}", d.ranks, s.mesh.tensor,
                               s.mesh.pipeline, s.mesh.context),
                   "--ranks gives how many the run has");
  s.mesh.data = d.ranks > 0 ? static_cast<int>(d.ranks / inner) : 1;
  if (r.failed()) return;
  finish_experts(r, d, where);
  finish_stages(r, d, where);
  finish_states(r, d);
  finish_software(r, d);
  finish_recomputation(r, d);
  finish_training(r, d);
  if (!s.mesh.routes_own_rows() && s.mesh.expert_tensor == s.mesh.tensor) s.mesh.expert_tensor = 0;
}

}  // namespace orrery::plan
