// Megatron-LM's flags (its main branch at d98e8a64, 2026-08-22), with those that its earlier versions and
// Megatron-DeepSpeed have besides.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/frameworks/layouts.h"
#include "plan/frameworks/settings.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

using Json = nlohmann::json;
using models::DType;
using models::RopeKind;

constexpr double kHuge = 1e30;
constexpr std::int64_t kWidest = std::int64_t{1} << 32;
const Json kLeftOut = nullptr;

Json flag(bool on) { return on ? Json(true) : Json(nullptr); }
template <class T>
Json given_if(bool on, const T& value) {
  return on ? Json(value) : Json(nullptr);
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

bool is_even(const Plan& plan) {
  const PlanSpec& s = plan.spec();
  for (int place = 0; place < s.places(); ++place)
    if (plan.chunk_layers(s.stage_at(place), place / s.mesh.pipeline) != plan.chunk_layers(kFirstStage, 0)) return false;
  return true;
}

const char* decay_word(Decay decay) {
  switch (decay) {
    case Decay::none: return "constant";
    case Decay::cosine: return "cosine";
    case Decay::linear: return "linear";
    case Decay::inverse_square_root: return "inverse-square-root";
    case Decay::wsd: return "WSD";
  }
  return "constant";
}

bool is_optimizer(const Writing& w, std::string_view name) {
  return traits_of(w.t().optimizer.kind).megatron == name;
}

/// Selective recomputation's modules in its words, in the order of `Module`.
constexpr std::array<const char*, 6> kModules = {"core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe"};

// What each flag says and how it is read. clang-format would spread a row over a page.
// clang-format off
#define WRITE []([[maybe_unused]] const Writing& w) -> Json
#define READ []([[maybe_unused]] Reading& r, [[maybe_unused]] const Given& g, [[maybe_unused]] Draft& d)
#define SIZE(member) READ { d.member = r.integer(g, 1, kWidest); }
#define COUNT(member, most) READ { d.member = static_cast<int>(r.integer(g, 1, most)); }
#define OPEN READ { d.open[g.key] = r.number(g, -kHuge, kHuge); }
#define MARK READ { d.open[g.key] = r.boolean(g) ? 1 : 0; }
#define WORD READ { d.words[g.key] = r.text(g); }
const char* const kModel = "MODEL_ARGS";
const char* const kParallel = "PARALLEL_ARGS";
const char* const kTraining = "TRAINING_ARGS";
const char* const kRead = "";  // flags that are only read

const Setting kCarried[] = {
    {kModel, "num-layers", WRITE { return w.m().layers; },
     READ { d.model.layers = r.integer(g, 1, kMostLayers); }},
    {kModel, "hidden-size", WRITE { return w.m().hidden; }, SIZE(model.hidden)},
    {kModel, "ffn-hidden-size", WRITE { return w.m().ffn_hidden; }, SIZE(model.ffn_hidden)},
    {kModel, "num-attention-heads", WRITE { return w.m().heads; }, SIZE(model.heads)},
    {kModel, "kv-channels", WRITE { return given_if(!w.m().latent.any(), w.m().head_dim); }, SIZE(model.head_dim)},
    {kModel, "group-query-attention", WRITE { return flag(w.m().kv_heads != w.m().heads); }, MARK},
    {kModel, "num-query-groups", WRITE { return given_if(w.m().kv_heads != w.m().heads, w.m().kv_heads); },
     SIZE(model.kv_heads)},
    {kModel, "seq-length", WRITE { return w.s().shape.sequence; },
     READ { d.spec.shape.sequence = r.integer(g, 1, kMostSequence); }},
    {kModel, "max-position-embeddings", WRITE { return std::max(w.m().max_sequence, w.s().shape.sequence); },
     SIZE(model.max_sequence)},
    {kModel, "position-embedding-type",
     WRITE { return w.m().positions == models::Positions::rope ? "rope"
                  : w.m().positions == models::Positions::none ? "none" : "learned_absolute"; },
     READ {
       const std::string word = r.word(g, {"learned_absolute", "rope", "none", "alibi", "rotary", "absolute"});
       d.model.positions = word == "rope" || word == "rotary" ? models::Positions::rope
                           : word == "none"                   ? models::Positions::none
                           : word == "alibi"                  ? models::Positions::alibi
                                                              : models::Positions::learned;
     }},
    {kModel, "rotary-base",
     WRITE { return given_if(w.m().positions == models::Positions::rope, std::llround(w.m().rope_theta)); },
     READ { d.model.rope_theta = r.number(g, 1, 1e12); }},
    {kModel, "rotary-percent",
     WRITE { return given_if(w.m().positions == models::Positions::rope && w.m().rotary_share < 1, w.m().rotary_share); },
     READ { d.model.rotary_share = r.number(g, 1e-6, 1); }},
    {kModel, "no-rope-freq",
     WRITE { return given_if(w.m().positions == models::Positions::rope && w.m().unrotated_period > 0,
                             w.m().unrotated_period); },
     SIZE(model.unrotated_period)},
    {kModel, "rotary-seq-len-interpolation-factor",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::linear, std::llround(w.m().rope_scaling.factor)); },
     OPEN},
    {kModel, "use-rope-scaling", WRITE { return flag(w.m().rope_scaling.kind == RopeKind::llama3); }, MARK},
    {kModel, "rope-scaling-factor",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::llama3, w.m().rope_scaling.factor); }, OPEN},
    {kModel, "rope-type",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::yarn, "yarn"); }, WORD},
    {kModel, "rotary-scaling-factor",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::yarn, w.m().rope_scaling.factor); }, OPEN},
    {kModel, "mscale",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::yarn, w.m().rope_scaling.score_weight); }, OPEN},
    {kModel, "mscale-all-dim",
     WRITE { return given_if(w.m().rope_scaling.kind == RopeKind::yarn, w.m().rope_scaling.score_weight); }, OPEN},
    {kModel, "normalization",
     WRITE { return w.m().normalisation == models::Normalisation::rms_norm ? "RMSNorm" : "LayerNorm"; },
     READ {
       const std::string word = r.word(g, {"LayerNorm", "RMSNorm", "layernorm", "rmsnorm"});
       d.model.normalisation = word == "RMSNorm" || word == "rmsnorm" ? models::Normalisation::rms_norm
                                                                      : models::Normalisation::layer_norm;
     }},
    {kModel, "norm-epsilon", WRITE { return w.m().norm_epsilon; },
     READ { d.model.norm_epsilon = r.number(g, 1e-12, 1); }},
    {kModel, "swiglu", WRITE { return flag(w.m().activation == models::Activation::swiglu); },
     READ { if (r.boolean(g)) d.model.activation = models::Activation::swiglu; }},
    {kModel, "squared-relu", WRITE { return flag(w.m().activation == models::Activation::squared_relu); },
     READ { if (r.boolean(g)) d.model.activation = models::Activation::squared_relu; }},
    {kModel, "add-qkv-bias", WRITE { return flag(w.m().qkv_bias && !w.m().bias); },
     READ { d.model.qkv_bias = r.boolean(g); }},
    {kModel, "qk-layernorm", WRITE { return flag(w.m().qk_norm || w.m().latent.any()); }, MARK},
    // The fusion with the bias has the tanh form; without it the exact one is the default.
    {kModel, "no-bias-gelu-fusion",
     WRITE { return flag(w.m().activation == models::Activation::gelu && w.m().gelu == models::Gelu::erf); }, MARK},
    {kModel, "openai-gelu",
     WRITE { return flag(w.m().activation == models::Activation::gelu && w.m().gelu == models::Gelu::tanh && !w.m().bias); },
     MARK},
    {kModel, "disable-bias-linear", WRITE { return flag(!w.m().bias); }, READ { d.model.bias = !r.boolean(g); }},
    {kModel, "untie-embeddings-and-output-weights", WRITE { return flag(!w.m().tied_embeddings); },
     READ { d.model.tied_embeddings = !r.boolean(g); }},
    {kModel, "make-vocab-size-divisible-by", WRITE { return w.s().numerics.vocab_multiple; },
     READ { d.spec.numerics.vocab_multiple = r.integer(g, 1, 1 << 16); }},
    {kModel, "init-method-std", WRITE { return w.m().initial_stddev; },
     READ { d.model.initial_stddev = r.number(g, 1e-9, 10); }},
    {kModel, "attention-dropout", WRITE { return w.dropout().attention; },
     READ { d.model.dropout.attention = r.number(g, 0, 0.99); }},
    {kModel, "hidden-dropout", WRITE { return w.dropout().residual; },
     READ { d.model.dropout.residual = d.model.dropout.embedding = r.number(g, 0, 0.99); }},
    {kModel, "multi-latent-attention", WRITE { return flag(w.m().latent.any()); }, MARK},
    {kModel, "q-lora-rank", WRITE { return given_if(w.m().latent.any() && w.m().latent.q_rank > 0, w.m().latent.q_rank); },
     READ { d.model.latent.q_rank = r.integer(g, 1, kWidest); }},
    {kModel, "kv-lora-rank", WRITE { return given_if(w.m().latent.any(), w.m().latent.kv_rank); }, OPEN},
    {kModel, "qk-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.nope); }, OPEN},
    {kModel, "qk-pos-emb-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.rope); }, OPEN},
    {kModel, "v-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.value); }, OPEN},
    {kModel, "num-experts", WRITE { return given_if(w.m().experts.any(), w.m().experts.count); },
     READ { d.model.experts.count = r.integer(g, 1, 1 << 20); }},
    {kModel, "moe-router-topk", WRITE { return given_if(w.m().experts.any(), w.m().experts.chosen); }, OPEN},
    {kModel, "moe-ffn-hidden-size", WRITE { return given_if(w.m().experts.any(), w.m().experts.hidden); },
     SIZE(model.experts.hidden)},
    {kModel, "moe-layer-freq",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.layers_of(w.m().layers) < w.m().layers,
                             w.m().experts.any() ? expert_layers(w.m()) : ""); },
     READ { d.words[g.key] = r.all(g); }},
    {kModel, "moe-shared-expert-intermediate-size",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.shared > 0, w.m().experts.shared); },
     SIZE(model.experts.shared)},
    {kModel, "moe-shared-expert-gate", WRITE { return flag(w.m().experts.any() && w.m().experts.shared_gate); },
     READ { d.model.experts.shared_gate = r.boolean(g); }},
    {kModel, "moe-router-score-function",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.scores == models::Scores::sigmoid, "sigmoid"); },
     READ { d.words[g.key] = r.word(g, {"softmax", "sigmoid"}); }},
    {kModel, "moe-router-pre-softmax",
     WRITE { return flag(w.m().experts.any() && w.m().experts.scores == models::Scores::softmax &&
                         !w.m().experts.normalised); }, MARK},
    {kModel, "moe-router-topk-scaling-factor",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.weight_scale != 1, w.m().experts.weight_scale); },
     READ { d.model.experts.weight_scale = r.number(g, 1e-6, 1e6); }},
    {kModel, "moe-router-num-groups",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.groups > 1, w.m().experts.groups); },
     SIZE(model.experts.groups)},
    {kModel, "moe-router-group-topk",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.groups > 1, w.m().experts.groups_chosen); },
     SIZE(model.experts.groups_chosen)},
    {kModel, "moe-apply-probs-on-input", WRITE { return flag(w.m().experts.any() && w.m().experts.scales_input); },
     READ { d.model.experts.scales_input = r.boolean(g); }},
    {kModel, "moe-router-dtype", WRITE { return given_if(w.m().experts.any(), "fp32"); },
     READ { if (r.word(g, {"fp32", "fp64"}) != "fp32") r.leave(g, "routers compute in fp32 here"); }},
    // Its balancing losses are per layer, and the first is also divided by the experts chosen per token; ours are over
    // all layers together.
    {kModel, "moe-router-load-balancing-type",
     WRITE { return given_if(w.m().experts.any(), w.m().experts.aux_coefficient > 0 ? "global_aux_loss" : "none"); },
     READ {
       d.words[g.key] = r.all(g);
       if (d.words[g.key].find("sinkhorn") != std::string::npos) r.leave(g, "routers here have no Sinkhorn iterations");
     }},
    {kModel, "moe-aux-loss-coeff",
     WRITE {
       const models::Experts& e = w.m().experts;
       return given_if(e.any() && e.aux_coefficient > 0, e.aux_coefficient * static_cast<double>(e.chosen) /
                           static_cast<double>(std::max<std::int64_t>(1, e.layers_of(w.m().layers))));
     }, OPEN},
    {kModel, "moe-z-loss-coeff",
     WRITE {
       const models::Experts& e = w.m().experts;
       return given_if(e.any() && e.z_coefficient > 0,
                       e.z_coefficient / static_cast<double>(std::max<std::int64_t>(1, e.layers_of(w.m().layers))));
     }, OPEN},
    {kModel, "moe-router-enable-expert-bias", WRITE { return flag(w.m().experts.any() && w.m().experts.balance_bias); },
     MARK},
    {kModel, "moe-router-bias-update-rate",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.balance_bias, w.m().experts.bias_rate); }, OPEN},
    {kModel, "moe-expert-capacity-factor",
     WRITE { return given_if(w.m().experts.any() && w.m().experts.capacity_factor > 0, w.m().experts.capacity_factor); },
     READ { d.model.experts.capacity_factor = std::max(0.0, r.number(g, -1, 1e6)); }},
    {kModel, "moe-grouped-gemm", WRITE { return flag(w.m().experts.any()); }, READ { (void)r.boolean(g); }},
    {kModel, "moe-token-dispatcher-type", WRITE { return given_if(w.m().experts.any(), "alltoall"); },
     READ {
       if (r.word(g, {"alltoall", "flex", "allgather"}) != "alltoall")
         r.leave(g, "tokens travel by all-to-alls here, whatever library sends them");
      
     }},
    {kModel, "expert-model-parallel-size", WRITE { return given_if(w.m().experts.any(), w.s().mesh.expert); },
     COUNT(spec.mesh.expert, kMostRanks)},
    {kModel, "expert-tensor-parallel-size", WRITE { return given_if(w.m().experts.any(), w.s().mesh.expert_ways()); },
     OPEN},
    {kModel, "mtp-num-layers", WRITE { return given_if(w.m().further.any(), w.m().further.modules); },
     READ {
       const std::int64_t modules = r.integer(g, 0, 64);
       if (modules > 1) r.leave(g, "models here predict at most one token further");
       d.model.further.modules = std::min<std::int64_t>(modules, 1);
     }},
    {kModel, "mtp-loss-scaling-factor", WRITE { return given_if(w.m().further.any(), w.m().further.weight); }, OPEN},

    {kParallel, "micro-batch-size", WRITE { return w.s().shape.micro_batch; },
     READ { d.spec.shape.micro_batch = r.integer(g, 1, kMostBatch); }},
    {kParallel, "global-batch-size", WRITE { return w.s().shape.batch; },
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 1, kMostBatch)); }},
    {kParallel, "tensor-model-parallel-size", WRITE { return w.s().mesh.tensor; }, COUNT(spec.mesh.tensor, kMostRanks)},
    {kParallel, "sequence-parallel", WRITE { return flag(w.s().mesh.shards_rows()); },
     READ { d.spec.mesh.sequence_parallel = r.boolean(g); }},
    {kParallel, "context-parallel-size", WRITE { return w.s().mesh.context; }, COUNT(spec.mesh.context, kMostRanks)},
    {kParallel, "cp-comm-type", WRITE { return given_if(w.s().mesh.context > 1, "p2p"); },
     READ { if (r.all(g) != "p2p") r.leave(g, "keys and values go round a ring here (p2p)"); }},
    {kParallel, "pipeline-model-parallel-size", WRITE { return w.s().mesh.pipeline; },
     COUNT(spec.mesh.pipeline, kMostRanks)},
    {kParallel, "pipeline-model-parallel-layout",
     WRITE { return given_if(w.s().mesh.pipeline > 1 && !is_even(w.plan), layout_text(w.plan)); }, WORD},
    {kParallel, "num-virtual-stages-per-pipeline-rank",
     WRITE { return given_if(w.s().mesh.pipeline > 1 && is_even(w.plan) && w.s().stages.virtual_stages > 1,
                             w.s().stages.virtual_stages); },
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 1, kMostLayers)); }},
    {kParallel, "use-distributed-optimizer", WRITE { return flag(partitions(w.s())); }, MARK},
    {kParallel, "use-megatron-fsdp", WRITE { return flag(partitions_gradients(w.s())); }, MARK},
    {kParallel, "data-parallel-sharding-strategy",
     WRITE { return given_if(partitions_gradients(w.s()),
                             w.s().states.zero_stage == 2 ? "optim_grads" : "optim_grads_params"); },
     READ { d.words[g.key] = r.word(g, {"no_shard", "optim", "optim_grads", "optim_grads_params"}); }},
    {kParallel, "ckpt-format", WRITE { return given_if(partitions_gradients(w.s()), "fsdp_dtensor"); },
     READ { }},
    {kParallel, "num-distributed-optimizer-instances",
     WRITE { return given_if(partitions(w.s()) && w.s().sub_groups() > 1, w.s().sub_groups()); },
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 1, kMostRanks)); }},
    {kParallel, "overlap-grad-reduce", WRITE { return flag(w.s().reduces_early() || partitions_gradients(w.s())); }, MARK},
    {kParallel, "overlap-param-gather",
     WRITE { return flag((w.s().reduces_early() || partitions_gradients(w.s())) && partitions(w.s())); },
     READ { (void)r.boolean(g); }},
    {kParallel, "grad-reduce-in-bf16",
     WRITE { return flag(w.s().compresses() && w.s().compression.gradients == GradientCompression::bf16); },
     READ { if (r.boolean(g)) d.spec.compression.gradients = GradientCompression::bf16; }},
    {kParallel, "recompute-granularity",
     WRITE {
       if (w.s().recomputation.what == Recompute::full) return "full";
       return given_if(!w.s().recompute_of(0).modules.empty(), "selective");
     },
     READ { d.words[g.key] = r.word(g, {"full", "selective"}); }},
    {kParallel, "recompute-method",
     WRITE { return given_if(w.s().recomputation.what == Recompute::full,
                             w.s().recomputation.layers ? "block" : "uniform"); },
     READ { d.words[g.key] = r.word(g, {"uniform", "block"}); }},
    {kParallel, "recompute-num-layers",
     WRITE { return given_if(w.s().recomputation.what == Recompute::full, w.s().recomputation.layers.value_or(1)); },
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 0, kMostLayers)); }},
    {kParallel, "distribute-saved-activations",
     WRITE { return flag(w.s().recomputation.what == Recompute::full && w.s().recomputation.partition_checkpoints); },
     READ { d.spec.recomputation.partition_checkpoints = r.boolean(g); }},
    {kParallel, "recompute-modules",
     WRITE {
       const Modules modules = w.s().recompute_of(0).modules;
       if (w.s().recomputation.what == Recompute::full || modules.empty()) return nullptr;
       Json names = Json::array();
       for (std::size_t i = 0; i < kModules.size(); ++i)
         if (modules.has(static_cast<Module>(i))) names.push_back(kModules.at(i));
       return names;
     },
     READ {
       for (const GivenValue& one : g.values) {
         const auto at = std::find(kModules.begin(), kModules.end(), one.text);
         if (at != kModules.end())
           d.spec.recomputation.modules =
               d.spec.recomputation.modules.with(static_cast<Module>(at - kModules.begin()));
         else
           r.leave(g, fmt::format("{} is not a part that is recomputed alone here", base::quoted(one.text)));
       }
     }},
    {kParallel, "attention-backend", WRITE { return w.s().numerics.flash ? "auto" : "unfused"; },
     READ {
       std::string word = r.text(g);
       word = word.substr(word.find('.') + 1);  // AttnBackend.flash
       d.open["flash"] = word == "unfused" || word == "local" ? 0 : 1;
     }},
    {kParallel, "optimizer-cpu-offload", WRITE { return flag(w.s().offload.optimizer == Space::host); },
     READ { if (r.boolean(g)) d.spec.offload.optimizer = Space::host; }},
    {kParallel, "optimizer-offload-fraction", WRITE { return given_if(w.s().offload.optimizer == Space::host, "1.0"); },
     READ { if (r.number(g, 0, 1) < 1) r.leave(g, "states are offloaded whole here"); }},
    {kParallel, "use-precision-aware-optimizer",
     WRITE { return flag(w.s().offload.optimizer == Space::host); }, MARK},
    {kParallel, "bf16",
     WRITE { return flag(w.s().numerics.precision == DType::bf16 || w.s().numerics.precision == DType::fp8 ||
                         w.s().numerics.precision == DType::fp4); },
     READ { if (r.boolean(g) && d.spec.numerics.precision == DType::fp32) d.spec.numerics.precision = DType::bf16; }},
    {kParallel, "fp16", WRITE { return flag(w.s().numerics.precision == DType::fp16); },
     READ { if (r.boolean(g) && d.spec.numerics.precision == DType::fp32) d.spec.numerics.precision = DType::fp16; }},
    {kParallel, "initial-loss-scale",
     WRITE { return given_if(w.s().numerics.precision == DType::fp16, w.t().loss_scaling.initial); },
     READ { d.training.loss_scaling.initial = r.number(g, 1, kHuge); }},
    {kParallel, "loss-scale-window",
     WRITE { return given_if(w.s().numerics.precision == DType::fp16, w.t().loss_scaling.interval); },
     READ { d.training.loss_scaling.interval = r.integer(g, 1, kMostSteps); }},
    {kParallel, "hysteresis", WRITE { return given_if(w.s().numerics.precision == DType::fp16, 1); },
     READ { if (r.integer(g, 1, 1 << 20) > 1) r.pass_over(g, "a loss scale shrinks at the first overflow here"); }},
    {kParallel, "fp8-format", WRITE { return given_if(w.s().numerics.precision == DType::fp8, "hybrid"); },
     READ { (void)r.word(g, {"hybrid", "e4m3"}); d.spec.numerics.precision = DType::fp8; }},
    {kParallel, "fp8-recipe", WRITE { return given_if(w.s().numerics.precision == DType::fp8, "tensorwise"); },
     READ { if (r.text(g) != "tensorwise") r.leave(g, "values in fp8 have one scale per tensor here"); }},
    {kParallel, "fp4-format", WRITE { return given_if(w.s().numerics.precision == DType::fp4, "e2m1"); },
     READ { (void)r.text(g); d.spec.numerics.precision = DType::fp4; }},
    {kParallel, "fp4-recipe", WRITE { return given_if(w.s().numerics.precision == DType::fp4, "nvfp4"); },
     READ { (void)r.text(g); }},

    {kTraining, "train-iters", WRITE { return w.t().steps; },
     READ { d.training.steps = r.integer(g, 1, kMostSteps); d.open[g.key] = 1; }},
    {kTraining, "seed", WRITE { return w.t().seed; },
     READ { d.training.seed = static_cast<std::uint64_t>(r.integer(g, 0, std::int64_t{1} << 52)); }},
    {kTraining, "optimizer", WRITE { return std::string(traits_of(w.t().optimizer.kind).megatron); },
     READ {
       const std::string word = r.word(g, {"adam", "sgd", "muon", "dist_muon", "lion"});
       d.words[g.key] = word == "dist_muon" ? "muon" : word;
     }},
    {kTraining, "lr", WRITE { return w.t().optimizer.learning_rate; }, OPEN},
    {kTraining, "min-lr", WRITE { return w.t().schedule.minimum; },
     READ { d.training.schedule.minimum = r.number(g, 0, 1e3); }},
    {kTraining, "lr-decay-style", WRITE { return decay_word(w.t().schedule.decay); },
     READ {
       const std::string word = r.word(g, {"linear", "constant", "cosine", "inverse-square-root", "WSD"});
       for (const Decay one : {Decay::none, Decay::cosine, Decay::linear, Decay::inverse_square_root, Decay::wsd})
         if (word == decay_word(one)) d.training.schedule.decay = one;
     }},
    {kTraining, "lr-warmup-iters", WRITE { return w.t().schedule.warmup_steps; },
     READ { d.training.schedule.warmup_steps = r.integer(g, 0, kMostSteps); }},
    {kTraining, "lr-decay-iters", WRITE { return w.t().steps; }, OPEN},
    {kTraining, "lr-wsd-decay-style", WRITE { return given_if(w.t().schedule.decay == Decay::wsd, "linear"); },
     READ { if (r.text(g) != "linear") r.pass_over(g, "the last steps decay linearly here"); }},
    {kTraining, "lr-wsd-decay-iters",
     WRITE { return given_if(w.t().schedule.decay == Decay::wsd,
                             w.t().schedule.decay_steps > 0 ? w.t().schedule.decay_steps
                                                            : std::max<std::int64_t>(1, w.t().steps / 10)); },
     READ { d.training.schedule.decay_steps = r.integer(g, 1, kMostSteps); }},
    {kTraining, "weight-decay", WRITE { return w.t().optimizer.weight_decay; }, OPEN},
    {kTraining, "sgd-momentum", WRITE { return given_if(is_optimizer(w, "sgd"), w.t().optimizer.momentum); }, OPEN},
    {kTraining, "adam-beta1", WRITE { return given_if(is_optimizer(w, "adam"), w.t().optimizer.beta1); }, OPEN},
    {kTraining, "adam-beta2", WRITE { return given_if(is_optimizer(w, "adam"), w.t().optimizer.beta2); }, OPEN},
    {kTraining, "adam-eps", WRITE { return given_if(is_optimizer(w, "adam"), w.t().optimizer.epsilon); }, OPEN},
    {kTraining, "clip-grad", WRITE { return w.t().clip_norm.value_or(0); },
     READ { const double norm = r.number(g, 0, kHuge); d.training.clip_norm.reset();
            if (norm > 0) d.training.clip_norm = norm; }},
    {kTraining, "eval-interval", WRITE { return w.t().evaluation ? w.t().evaluation->every : w.t().steps + 1; },
     READ { r.pass_over(g, "evaluations need data, which a job names"); }},
    {kTraining, "eval-iters", WRITE { return w.t().evaluation ? w.t().evaluation->batches : 0; },
     READ { r.pass_over(g, "evaluations need data, which a job names"); }},
    {kTraining, "log-interval", WRITE { return 1; }, READ { }},
    {kTraining, "log-throughput", WRITE { return true; }, READ { }},

    // Only read: the same in other words, and what older versions called it.
    {kRead, "vocab-size", nullptr, SIZE(model.vocab)},
    {kRead, "padded-vocab-size", nullptr, OPEN},
    {kRead, "pad-vocab-size-to", nullptr, OPEN},
    {kRead, "tokenizer-type", nullptr, WORD},
    {kRead, "layernorm-epsilon", nullptr, READ { d.model.norm_epsilon = r.number(g, 1e-12, 1); }},
    {kRead, "use-rotary-position-embeddings", nullptr,
     READ { if (r.boolean(g)) d.model.positions = models::Positions::rope; }},
    {kRead, "rotary-position-embeddings-theta", nullptr, READ { d.model.rope_theta = r.number(g, 1, 1e12); }},
    {kRead, "no-position-embedding", nullptr, MARK},
    {kRead, "num-key-value-heads", nullptr, READ { d.model.kv_heads = r.integer(g, 1, kWidest);
                                                   d.open["group-query-attention"] = 1; }},
    {kRead, "embed-layernorm", nullptr, READ { d.model.embedding_norm = r.boolean(g); }},
    {kRead, "glu-activation", nullptr,
     READ { d.model.activation = r.word(g, {"swiglu", "geglu"}) == "swiglu" ? models::Activation::swiglu
                                                                             : models::Activation::geglu; }},
    {kRead, "window-size", nullptr, OPEN},
    {kRead, "batch-size", nullptr, READ { d.spec.shape.micro_batch = r.integer(g, 1, kMostBatch); }},
    {kRead, "model-parallel-size", nullptr, COUNT(spec.mesh.tensor, kMostRanks)},
    {kRead, "num-layers-per-virtual-pipeline-stage", nullptr,
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 1, kMostLayers)); }},
    {kRead, "decoder-first-pipeline-num-layers", nullptr,
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 0, kMostLayers)); }},
    {kRead, "decoder-last-pipeline-num-layers", nullptr,
     READ { d.open[g.key] = static_cast<double>(r.integer(g, 0, kMostLayers)); }},
    {kRead, "account-for-embedding-in-pipeline-split", nullptr, MARK},
    {kRead, "account-for-loss-in-pipeline-split", nullptr, MARK},
    {kRead, "use-flash-attn", nullptr, READ { if (r.boolean(g)) d.open["flash"] = 1; }},
    {kRead, "use-flash-attn-v1", nullptr, READ { if (r.boolean(g)) d.open["flash"] = 1; }},
    {kRead, "use-flash-attn-v2", nullptr, READ { if (r.boolean(g)) d.open["flash"] = 1; }},
    {kRead, "use-flash-attn-triton", nullptr, READ { if (r.boolean(g)) d.open["flash"] = 1; }},
    {kRead, "recompute-activations", nullptr, READ { if (r.boolean(g)) d.words["recompute-granularity"] = "selective"; }},
    {kRead, "checkpoint-activations", nullptr, READ { if (r.boolean(g)) d.words["recompute-granularity"] = "full"; }},
    {kRead, "checkpoint-num-layers", nullptr, READ { d.open["recompute-num-layers"] = r.number(g, 0, kMostLayers); }},
    {kRead, "activations-checkpoint-method", nullptr,
     READ { d.words["recompute-method"] = r.word(g, {"uniform", "block"}); d.words["recompute-granularity"] = "full"; }},
    {kRead, "activations-checkpoint-num-layers", nullptr,
     READ { d.open["recompute-num-layers"] = r.number(g, 0, kMostLayers); }},
    {kRead, "distribute-checkpointed-activations", nullptr,
     READ { d.spec.recomputation.partition_checkpoints = r.boolean(g); }},
    {kRead, "partition-activations", nullptr, READ { d.spec.recomputation.partition_checkpoints = r.boolean(g); }},
    {kRead, "checkpoint-in-cpu", nullptr, READ { if (r.boolean(g)) d.spec.offload.activations = Space::host; }},
    {kRead, "fp8-hybrid", nullptr, READ { if (r.boolean(g)) d.spec.numerics.precision = DType::fp8; }},
    {kRead, "fp8-e4m3", nullptr, READ { if (r.boolean(g)) d.spec.numerics.precision = DType::fp8; }},
    {kRead, "train-samples", nullptr, READ { d.samples = r.integer(g, 1, kMostSteps); }},
    {kRead, "lr-warmup-samples", nullptr, OPEN},
    {kRead, "lr-warmup-fraction", nullptr, OPEN},
    {kRead, "lr-decay-samples", nullptr, OPEN},
    {kRead, "use-torch-fsdp2", nullptr, MARK},
    {kRead, "use-custom-fsdp", nullptr, READ { d.open["use-megatron-fsdp"] = r.boolean(g) ? 1 : 0; }},
    {kRead, "use-legacy-models", nullptr, MARK},
    {kRead, "use-mcore-models", nullptr, READ { (void)r.boolean(g); }},
    {kRead, "deepspeed", nullptr, MARK},
    {kRead, "deepspeed_config", nullptr, READ { d.words[g.key] = g.values.empty() ? "" : g.values.front().text;
                                                d.open["deepspeed"] = 1; }},
    {kRead, "deepspeed-activation-checkpointing", nullptr, READ { (void)r.boolean(g); }},
    {kRead, "zero-stage", nullptr, READ { d.spec.states.zero_stage = static_cast<int>(r.integer(g, 0, 3));
                                          d.open["deepspeed"] = 1; }},
    {kRead, "cpu-optimizer", nullptr, READ { if (r.boolean(g)) d.spec.offload.optimizer = Space::host; }},
    {kRead, "topk", nullptr, READ { d.open["moe-router-topk"] = r.number(g, 1, 1 << 20); }},
    {kRead, "moe-expert-parallel-size", nullptr, COUNT(spec.mesh.expert, kMostRanks)},
    {kRead, "moe-train-capacity-factor", nullptr, READ { d.model.experts.capacity_factor = r.number(g, 0, 1e6); }},
    {kRead, "moe-loss-coeff", nullptr, READ { d.open["moe-aux-loss-coeff"] = r.number(g, 0, 1e6); }},
    {kRead, "apply-layernorm-1p", nullptr, READ { (void)r.boolean(g); }},
    {kRead, "layernorm-zero-centered-gamma", nullptr, READ { (void)r.boolean(g); }},
};
#undef WRITE
#undef READ
#undef SIZE
#undef COUNT
#undef OPEN
#undef MARK
#undef WORD

/// Known flags that are not carried over, by the reason.
struct PassedOver { const char* because; bool matters; std::vector<const char*> flags; };
const std::vector<PassedOver>& passed_over_flags() {
  static const std::vector<PassedOver> all = {
      {"data and tokenizers are a job's own (training.data)", false,
       {"data-path", "vocab-file", "merge-file", "split", "tokenizer-model", "tokenizer-name-or-path", "mock-data",
        "data-impl", "data-cache-path", "train-data-path", "valid-data-path", "test-data-path", "data-args-path",
        "per-split-data-args-path", "num-workers", "valid-num-workers", "mmap-warmup", "dataloader-type",
        "no-mmap-bin-files", "tiktoken-pattern", "tiktoken-num-special-tokens", "tiktoken-special-tokens",
        "no-create-attention-mask-in-dataloader", "train-weighted-split-paths-path", "valid-weighted-split-paths-path",
        "train-weighted-split-paths", "valid-weighted-split-paths", "test-weighted-split-paths", "eod-mask-loss",
        "reset-position-ids", "reset-attention-mask", "vocab-extra-ids", "trust-remote-code", "mask-prob",
        "short-seq-prob", "train-tokens", "repeated-dataloader", "num-dataset-builder-threads", "loss-on-targets-only",
        "create-attention-mask-in-dataloader", "make-vocab-size-divisible-by-tp", "legacy-tokenizer",
        "null-tokenizer-eod-id", "dataloader-fast-cache-load", "dataloader-defer-npy-index-mmap",
        "tokenizer-hf-include-special-tokens", "tokenizer-hf-no-use-fast", "fim-data", "fim-rate", "fim-spm-rate"}},
      {"checkpoints are Orrery's own", false,
       {"save", "load", "save-interval", "no-load-optim", "no-load-rng", "no-save-optim", "no-save-rng", "finetune",
        "ckpt-step", "use-checkpoint-args", "use-checkpoint-opt_param-scheduler", "override-opt_param-scheduler",
        "use-dist-ckpt", "dist-ckpt-format", "async-save", "auto-detect-ckpt-format", "exit-on-missing-checkpoint",
        "universal-checkpoint", "no-load-lr-state", "reset-iteration", "ckpt-assume-constant-structure",
        "ckpt-fully-parallel-save", "ckpt-fully-parallel-load", "dist-ckpt-strictness", "save-retain-interval",
        "pretrained-checkpoint", "load-tag", "use-persistent-ckpt-worker", "no-ckpt-fully-parallel-save",
        "dist-ckpt-optim-fully-reshardable", "use-mp-args-from-checkpoint-args"}},
      {"it logs, measures or ends the run", false,
       {"tensorboard-dir", "tensorboard-queue-size", "tensorboard-log-interval", "log-timers-to-tensorboard",
        "log-batch-size-to-tensorboard", "log-validation-ppl-to-tensorboard", "log-memory-to-tensorboard",
        "log-optimizer-states-to-tensorboard", "log-params-norm", "log-num-zeros-in-grad", "log-progress",
        "log-world-size-to-tensorboard", "log-loss-scale-to-tensorboard", "timing-log-level", "timing-log-option",
        "wandb-project", "wandb-exp-name", "wandb-save-dir", "wandb-entity", "logging-level", "log-energy",
        "log-device-memory-used", "log-memory-interval", "exit-interval", "exit-duration-in-mins",
        "exit-signal-handler", "exit-signal", "kill-switch-path", "kill-switch-file", "profile", "profile-step-start",
        "profile-step-end", "profile-ranks", "use-pytorch-profiler", "record-memory-history", "memory-snapshot-path",
        "codecarbon-dir", "manual-gc", "manual-gc-interval", "manual-gc-eval", "empty-unused-memory-level",
        "check-for-nan-in-loss-and-grad", "no-check-for-nan-in-loss-and-grad", "check-for-large-grads",
        "rerun-mode", "eval-global-batch-size", "skip-train", "eval-micro-batch-size", "eval-only", "inference",
        "no-log-loss-scale-to-tensorboard", "no-log-learnig-rate-to-tensorboard", "enable-one-logger",
        "no-one-logger", "one-logger-project", "one-logger-run-name", "moe-per-layer-logging", "log-straggler",
        "log-interval-to-tensorboard", "log-path", "check-weight-hash-across-dp-replicas-interval",
        "disable-straggler-on-startup", "straggler-minmax-count", "adlr-autoresume", "adlr-autoresume-interval",
        "abort-on-unmet-fused-kernel-constraints", "no-barrier-with-level-1-timing", "trigger-path",
        "rerun-inject-fault-type", "deterministic-mode", "nccl-communicator-config-path"}},
      {"how processes find each other is not modelled", false,
       {"distributed-backend", "distributed-timeout-minutes", "local_rank", "local-rank", "lazy-mpu-init",
        "DDP-impl", "use-cpu-initialization", "no-initialization", "init-model-with-meta-device",
        "use-tp-pp-dp-mapping", "use-ring-exchange-p2p", "no-pipeline-parallel", "enable-gloo-process-groups",
        "disable-gloo-process-groups", "no-contiguous-buffers-in-local-ddp", "no-scatter-gather-tensors-in-pipeline",
        "high-priority-stream-groups", "use-nccl-ub", "use-sharp", "te-rng-tracker", "data-parallel-random-init",
        "create-moe-param-group", "distributed-timeout-seconds-after-init"}},
      {"it starts or schedules the optimizer in a way that changes no time or memory", false,
       {"lr-warmup-init", "start-weight-decay", "end-weight-decay", "weight-decay-incr-style", "decoupled-lr",
        "decoupled-min-lr", "loss-scale", "min-loss-scale", "init-method-xavier-uniform", "lr-decay-tokens",
        "lr-warmup-tokens", "no-weight-decay-cond-type", "use-checkpoint-opt-param-scheduler",
        "override-opt-param-scheduler", "calculate-per-token-loss", "sync-tp-duplicated-parameters",
        "embedding-init-method-std", "apply-wd-to-qk-layernorm", "attention-softmax-in-fp32",
        "no-query-key-layer-scaling", "apply-query-key-layer-scaling", "moe-router-force-load-balancing",
        "moe-input-jitter-eps", "muon-nesterov", "muon-scale-mode", "muon-num-ns-steps", "muon-extra-scale-factor",
        "fp8-amax-history-len", "fp8-amax-compute-algo", "fp8-margin", "fp8-interval"}},
      {"a batch that grows is of the run's first part alone; the step here is a full one", false,
       {"rampup-batch-size", "step-batch-size-schedule", "decrease-batch-size-if-needed", "curriculum-learning",
        "data-efficiency-curriculum-learning"}},
      {"the stack says which kernels are fused", false,
       {"no-masked-softmax-fusion", "no-bias-dropout-fusion", "no-bias-swiglu-fusion", "bias-swiglu-fusion",
        "no-rope-fusion", "apply-rope-fusion", "cross-entropy-loss-fusion", "cross-entropy-fusion-impl",
        "no-gradient-accumulation-fusion", "no-persist-layer-norm", "transformer-impl", "moe-permute-fusion",
        "moe-router-fusion", "disable-mem-efficient-ln", "no-align-param-gather", "ddp-bucket-size", "ddp-num-buckets",
        "moe-use-legacy-grouped-gemm", "ddp-average-in-collective", "ddp-pad-buckets-for-high-nccl-busbw",
        "accumulate-allreduce-grads-in-fp32", "no-gradient-reduce-div-fusion", "mla-down-proj-fusion",
        "no-async-tensor-model-parallel-allreduce", "deallocate-pipeline-outputs", "disable-jit-fuser",
        "use-te-activation-func", "pp-partition-method", "enable-experimental", "moe-pad-expert-input-to-capacity",
        "moe-token-drop-policy", "moe-router-padding-for-fp8", "moe-router-padding-for-quantization", "use-pin-memory",
        "overlap-p2p-communication", "no-overlap-p2p-communication", "fsdp-double-buffer", "zero-reduce-scatter",
        "zero-contigious-gradients", "ds_fused_adam", "use-torch-optimizer-for-cpu-offload", "no-pin-cpu-grads",
        "no-pin-cpu-params", "contigious-checkpointing", "synchronize-each-layer", "memory-centric-tiled-linear"}},
      {"the stack says what overlaps", true,
       {"tp-comm-overlap", "tp-comm-overlap-cfg", "overlap-moe-expert-parallel-comm", "delay-wgrad-compute",
        "moe-shared-expert-overlap", "overlap-param-gather-with-optimizer-step", "overlap-cpu-optimizer-d2h-h2d",
        "defer-embedding-wgrad-compute", "tp-comm-bulk-dgrad", "tp-comm-bulk-wgrad", "moe-enable-deepep",
        "moe-flex-dispatcher-backend", "moe-deepep-num-sms", "moe-hybridep-num-sms", "batch-p2p-communication",
        "microbatch-group-size-per-virtual-pipeline-stage", "enable-cuda-graph", "cuda-graph-impl",
        "cuda-graph-scope", "external-cuda-graph", "cuda-graph-modules", "cuda-graph-warmup-steps"}},
      {"parameters and states have the types that the precision brings", true,
       {"fp8-param-gather", "fp8-param", "fp4-param-gather", "main-grads-dtype", "main-params-dtype", "exp-avg-dtype",
        "exp-avg-sq-dtype", "fp32-residual-connection", "fp16-lm-cross-entropy", "reuse-grad-buf-for-mxfp8-param-ag",
        "first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16", "keep-fp8-transpose-cache",
        "megatron-fsdp-main-params-dtype", "megatron-fsdp-main-grads-dtype", "embedding-weights-in-fp32"}},
      {"there is no word for it", true,
       {"hybrid-layer-pattern", "hybrid-override-pattern", "hybrid-attention-ratio", "is-hybrid-model",
        "mamba-state-dim", "mamba-head-dim", "mamba-num-groups", "mamba-num-heads", "standalone-embedding-stage",
        "pipeline-model-parallel-split-rank", "encoder-num-layers", "decoder-num-layers", "encoder-seq-length",
        "decoder-seq-length", "window-attn-skip-freq", "softmax-type", "softmax-scale", "quick-geglu", "kd", "mos", "mlp-type",
        "experimental-attention-variant", "attention-output-gate", "linear-attention-freq", "spec",
        "apply-residual-connection-post-layernorm", "fine-grained-activation-offloading", "offload-modules",
        "cpu-offloading", "cpu-offloading-num-layers", "hierarchical-context-parallel-sizes", "ds-sequence-parallel-size",
        "moe-latent-size", "moe-layer-recompute", "random-ltd", "use-tutel", "enable-zbh1-pipeline",
        "enable-expert-tensor-parallelism", "heterogeneous-layers-config-path", "moe-use-upcycling",
        "outer-dp-sharding-strategy", "torch-fsdp2-no-reshard-after-forward", "remote-device", "moe-min-capacity",
        "disable-moe-token-dropping", "moe-eval-capacity-factor", "moe-router-topk-limited-devices",
        "glu-linear-offset", "activation-func-clamp-value", "qk-l2-norm", "yaml-cfg", "bert-no-binary-head",
        "rotary-interleaved", "original-max-position-embeddings", "beta-fast", "beta-slow", "lora-rank",
        "moe-extended-tp", "gemma", "inference-max-seq-length", "multiple-validation-sets"}},
  };
  return all;
}
// clang-format on

double open_of(const Draft& d, const char* key, double otherwise) {
  const auto at = d.open.find(key);
  return at == d.open.end() ? otherwise : at->second;
}
bool is_open(const Draft& d, const char* key) { return open_of(d, key, 0) != 0; }
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
    m.rope_scaling = {.kind = RopeKind::llama3, .factor = open_of(d, "rope-scaling-factor", 8), .original = 8192,
                      .low = 1, .high = 4};
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
    if (word_of(d, "rope-type") == "yarn" || (word_of(d, "rope-type").empty() && d.open.contains("rotary-scaling-factor")))
      m.rope_scaling = {.kind = RopeKind::yarn, .factor = factor, .original = 4096, .low = 1, .high = 32,
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
    if (tokenizer == "GPT2BPETokenizer" || (tokenizer.empty() && d.open.contains("vocab-file")))
      m.vocab = 50257;
    else if (tokenizer == "Llama2Tokenizer")
      m.vocab = 32000;
    if (m.vocab > 0)
      r.assume(fmt::format("a vocabulary of {}, that of {}", m.vocab, tokenizer));
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
  if (balances) e.aux_coefficient =
      rounded(open_of(d, "moe-aux-loss-coeff", 0) * expert_layers / static_cast<double>(e.chosen));
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
      r.error("E0653", where, fmt::format("--pipeline-model-parallel-layout {} is not read as {} stages",
                                          base::quoted(layout), pipeline), "Et*3|t*4|t*4|t*3L");
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
    d.stack = deepspeed                      ? "megatron-deepspeed-2022"
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
  const auto count = static_cast<std::int64_t>(open_of(d, "recompute-num-layers", 1));
  if (word_of(d, "recompute-method") == "block")
    c.layers = count;
  else if (count > 1)
    r.assume(fmt::format("every layer keeps a checkpoint, not every {}th (recompute-num-layers)", count));
}

void finish_training(Reading& r, Draft& d) {
  Training& t = d.training;
  PlanSpec& s = d.spec;
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
  if (const double samples = open_of(d, "lr-warmup-samples", 0); samples > 0) t.schedule.warmup_steps = steps_of(samples);
  const double decay = open_of(d, "lr-decay-iters", static_cast<double>(t.steps));
  if (const double share = open_of(d, "lr-warmup-fraction", 0); share > 0)
    t.schedule.warmup_steps = static_cast<std::int64_t>(share * decay);
  if (decay != static_cast<double>(t.steps) || d.open.contains("lr-decay-samples"))
    r.assume("the learning rate decays until the run's end");
  const double weight_decay = open_of(d, "weight-decay", 0.01);
  std::string kind = word_of(d, "optimizer");
  if (kind.empty()) kind = "adam";
  t.optimizer = usual(kind == "sgd"     ? OptimizerKind::sgd
                      : kind == "muon"  ? OptimizerKind::muon
                      : kind == "lion"  ? OptimizerKind::lion
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

std::span<const Setting> megatron_settings_table() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> out(std::begin(kCarried), std::end(kCarried));
    for (const PassedOver& reason : passed_over_flags())
      for (const char* const name : reason.flags)
        out.push_back({"", name, nullptr, nullptr, reason.because, reason.matters});
    return out;
  }();
  return all;
}

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

void finish_megatron(Reading& r, Draft& d, const base::Location& where) {
  PlanSpec& s = d.spec;
  if (s.shape.sequence == 0) {
    if (!r.failed()) r.error("E0654", where, "--seq-length is not given", "--set seq-length=4096");
    return;
  }
  finish_model(r, d, where);
  const std::int64_t inner = std::int64_t{s.mesh.tensor} * s.mesh.pipeline * s.mesh.context;
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
  finish_recomputation(r, d);
  finish_training(r, d);
  if (!s.mesh.routes_own_rows() && s.mesh.expert_tensor == s.mesh.tensor) s.mesh.expert_tensor = 0;
}

}  // namespace orrery::plan
