// Megatron-LM's flags (its main branch at d98e8a64, 2026-08-22), with those that its earlier versions and
// Megatron-DeepSpeed have besides.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/frameworks/layouts.h"
#include "plan/frameworks/megatron_passed.h"
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

Json flag(bool on) {
  return on ? Json(true) : Json(nullptr);
}
template <class T>
Json given_if(bool on, const T& value) {
  return on ? Json(value) : Json(nullptr);
}

/// Tokens travel by kernels that go to the node first, then to the device.
bool two_hops(const Writing& w) {
  const auto& said = w.file.job.software.token_dispatcher;
  const bool travel = w.m().experts.any() && w.s().mesh.tensor * w.s().mesh.expert > 1;
  return travel && said && *said != TokenDispatcher::alltoall;
}

bool recomputes_all(const Writing& w) {
  return w.s().recomputation.what == Recompute::full;
}

/// The type of Adam's moments, if it is not fp32: its distributed optimizer's alone.
Json small_moments(const Writing& w) {
  constexpr std::int64_t kEight = 8, kHalf = 16;
  const bool adam = w.t().optimizer.kind == OptimizerKind::adamw || w.t().optimizer.kind == OptimizerKind::adam;
  const std::int64_t bits = adam && partitions(w.s()) ? w.file.job.software.moment_bits.value_or(0) : 0;
  return bits == kEight ? Json("fp8") : given_if(bits == kHalf, "bf16");
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
    if (plan.chunk_layers(s.stage_at(place), place / s.mesh.pipeline) != plan.chunk_layers(kFirstStage, 0))
      return false;
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
#define WHOLE(low, high) READ { d.open[g.key] = static_cast<double>(r.integer(g, low, high)); }
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
     WRITE { return given_if(w.m().positions == models::Positions::rope && w.m().rotary_share < 1,
       w.m().rotary_share); },
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
     WRITE { return flag(w.m().activation == models::Activation::gelu && w.m().gelu == models::Gelu::tanh &&
       !w.m().bias); },
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
    {kModel, "q-lora-rank", WRITE { return given_if(w.m().latent.any() && w.m().latent.q_rank > 0,
       w.m().latent.q_rank); },
     READ { d.model.latent.q_rank = r.integer(g, 1, kWidest); }},
    {kModel, "kv-lora-rank", WRITE { return given_if(w.m().latent.any(), w.m().latent.kv_rank); }, WHOLE(1, kWidest)},
    {kModel, "qk-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.nope); }, WHOLE(1, kWidest)},
    {kModel, "qk-pos-emb-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.rope); },
     WHOLE(1, kWidest)},
    {kModel, "v-head-dim", WRITE { return given_if(w.m().latent.any(), w.m().latent.value); }, WHOLE(1, kWidest)},
    {kModel, "num-experts", WRITE { return given_if(w.m().experts.any(), w.m().experts.count); },
     READ { d.model.experts.count = r.integer(g, 1, 1 << 20); }},
    {kModel, "moe-router-topk", WRITE { return given_if(w.m().experts.any(), w.m().experts.chosen); },
     WHOLE(1, 1 << 20)},
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
     WRITE { return given_if(w.m().experts.any() && w.m().experts.capacity_factor > 0,
       w.m().experts.capacity_factor); },
     READ { d.model.experts.capacity_factor = std::max(0.0, r.number(g, -1, 1e6)); }},
    {kModel, "moe-grouped-gemm", WRITE { return flag(w.m().experts.any()); }, READ { (void)r.boolean(g); }},
    {kModel, "moe-token-dispatcher-type",
     WRITE { return given_if(w.m().experts.any(), two_hops(w) ? "flex" : "alltoall"); },
     READ {
       const std::string word = r.word(g, {"alltoall", "flex", "allgather"});
       if (word == "allgather") r.leave(g, "tokens travel by all-to-alls here");
       d.words[g.key] = word;
     }},
    {kRead, "moe-enable-deepep", nullptr,
     READ { if (r.boolean(g)) d.software.token_dispatcher = TokenDispatcher::deepep; }},
    {kModel, "moe-flex-dispatcher-backend",
     WRITE {
       return given_if(two_hops(w), w.file.job.software.token_dispatcher == TokenDispatcher::deepep ? "deepep"
                                                                                                    : "hybridep");
     },
     READ {
       d.software.token_dispatcher = r.word(g, {"deepep", "hybridep"}) == "deepep" ? TokenDispatcher::deepep
                                                                                    : TokenDispatcher::hybridep;
     }},
    {kModel, "overlap-moe-expert-parallel-comm",
     WRITE {  // its assertions
       const bool other = w.s().mesh.pipeline == 1 || w.s().stages.virtual_stages > 1;
       const bool can = w.m().experts.any() && w.s().mesh.expert > 1 && other && !recomputes_all(w);
       return flag(can && w.file.job.software.overlap_exchange.value_or(false));
     },
     READ { d.software.overlap_exchange = r.boolean(g); }},
    {kModel, "moe-router-fusion",
     WRITE { return flag(w.m().experts.any() && w.file.job.software.router_fusion.value_or(false)); },
     READ { d.software.router_fusion = r.boolean(g); }},
    {kModel, "expert-model-parallel-size", WRITE { return given_if(w.m().experts.any(), w.s().mesh.expert); },
     COUNT(spec.mesh.expert, kMostRanks)},
    {kModel, "expert-tensor-parallel-size", WRITE { return given_if(w.m().experts.any(), w.s().mesh.expert_ways()); },
     WHOLE(1, kMostRanks)},
    {kModel, "mtp-num-layers", WRITE { return given_if(w.m().further.any(), w.m().further.modules); },
     READ {
       const std::int64_t modules = r.integer(g, 0, 64);
       if (modules > 1) r.leave(g, "models here predict at most one token further");
       d.model.further.modules = std::min<std::int64_t>(modules, 1);
     }},
    {kModel, "mtp-loss-scaling-factor", WRITE { return given_if(w.m().further.any(), w.m().further.weight); }, OPEN},

    {kParallel, "micro-batch-size", WRITE { return w.s().shape.micro_batch; },
     READ { d.spec.shape.micro_batch = r.integer(g, 1, kMostBatch); d.open["micro-batch-size"] = 1; }},
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
    {kParallel, "overlap-grad-reduce", WRITE { return flag(w.s().reduces_early() || partitions_gradients(w.s()));
       }, MARK},
    {kParallel, "overlap-param-gather",
     WRITE { return flag((w.s().reduces_early() || partitions_gradients(w.s())) && partitions(w.s())); },
     READ { (void)r.boolean(g); }},
    {kParallel, "grad-reduce-in-bf16",
     WRITE {
       const bool encoded = w.s().compresses() && w.s().compression.gradients == GradientCompression::bf16;
       return flag(encoded || w.file.job.software.gradient_dtype == ReduceType::bf16);
     },
     READ { if (r.boolean(g)) d.software.gradient_dtype = ReduceType::bf16; }},
    {kParallel, "accumulate-allreduce-grads-in-fp32",
     WRITE { return flag(w.file.job.software.gradient_dtype == ReduceType::fp32 && !w.s().compresses()); },
     READ { if (r.boolean(g)) d.software.gradient_dtype = ReduceType::fp32; }},
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
    {kParallel, "attention-backend",
     WRITE {
       const std::optional<AttentionKernel>& kernel = w.file.job.software.attention_kernel;
       if (!w.s().numerics.flash || kernel == AttentionKernel::math || kernel == AttentionKernel::xla) return "unfused";
       if (!kernel) return "auto";
       return kernel == AttentionKernel::cudnn ? "fused" : "flash";
     },
     READ {
       std::string word = r.text(g);
       word = word.substr(word.find('.') + 1);  // AttnBackend.flash
       d.open["flash"] = word == "unfused" || word == "local" ? 0 : 1;
       if (word == "fused") d.software.attention_kernel = AttentionKernel::cudnn;  // Transformer Engine's own
     }},
    {kParallel, "optimizer-cpu-offload", WRITE { return flag(w.s().offload.optimizer == Space::host); },
     READ { if (r.boolean(g)) d.spec.offload.optimizer = Space::host; }},
    {kParallel, "optimizer-offload-fraction", WRITE { return given_if(w.s().offload.optimizer == Space::host, "1.0"); },
     READ { if (r.number(g, 0, 1) < 1) r.leave(g, "states are offloaded whole here"); }},
    {kParallel, "use-precision-aware-optimizer",
     WRITE { return flag(w.s().offload.optimizer == Space::host || small_moments(w) != nullptr); }, MARK},
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
    {kParallel, "fp8-recipe",
     WRITE {
       const Fp8Recipe recipe = w.file.job.software.fp8_recipe.value_or(Fp8Recipe::tensorwise);
       const bool known = recipe != Fp8Recipe::rowwise && recipe != Fp8Recipe::nvfp4;
       return given_if(w.s().numerics.precision == DType::fp8,
                       kFp8Words.at(static_cast<std::size_t>(known ? recipe : Fp8Recipe::tensorwise)));
     },
     READ {
       const std::string word = r.text(g);
       const auto at = std::find(kFp8Words.begin(), kFp8Words.end(), word);
       if (at == kFp8Words.end())
         r.leave(g, "there is no word for it");
       else
         d.software.fp8_recipe = static_cast<Fp8Recipe>(at - kFp8Words.begin());
     }},
    {kParallel, "fp8-param-gather",
     WRITE { return flag(w.s().numerics.precision == DType::fp8 && partitions(w.s()) &&
                         w.file.job.software.fp8_param_gather.value_or(false)); },
     READ { if (r.boolean(g)) d.software.fp8_param_gather = true; }},
    {kParallel, "exp-avg-dtype", WRITE { return small_moments(w); }, WORD},
    {kParallel, "exp-avg-sq-dtype", WRITE { return small_moments(w); }, WORD},
    {kRead, "cross-entropy-loss-fusion", nullptr, MARK},  // with `te` its newer versions refuse it
    {kRead, "cross-entropy-fusion-impl", nullptr, WORD},
    {kRead, "no-scatter-gather-tensors-in-pipeline", nullptr,  // gone from newer versions
     READ { if (r.boolean(g)) d.software.scatter_gather = false; }},
    {kRead, "enable-cuda-graph", nullptr, READ { if (r.boolean(g)) d.software.cuda_graphs = true; }},
    {kRead, "external-cuda-graph", nullptr, READ { if (r.boolean(g)) d.software.cuda_graphs = true; }},
    {kParallel, "cuda-graph-impl",
     WRITE { return given_if(!recomputes_all(w) && w.file.job.software.cuda_graphs.value_or(false),
                             "transformer_engine"); },
     READ { d.software.cuda_graphs = r.text(g) != "none"; }},
    {kRead, "cpu-offloading", nullptr, MARK},  // of configurations; no flag
    {kParallel, "cpu-offloading-num-layers",
     WRITE {
       const bool can = w.s().mesh.pipeline == 1 && w.s().recomputation.what == Recompute::none &&
                        !w.file.job.software.cuda_graphs.value_or(false);
       const std::int64_t layers = w.file.job.software.cpu_offloading_layers.value_or(0);
       return given_if(can && layers > 0, layers);
     },
     WHOLE(0, kMostLayers)},
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
    {kTraining, "lr-decay-iters", WRITE { return w.t().steps; }, WHOLE(0, kMostSteps)},
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
    {kRead, "padded-vocab-size", nullptr, WHOLE(1, kWidest)},
    {kRead, "pad-vocab-size-to", nullptr, WHOLE(1, kWidest)},
    {kRead, "tokenizer-type", nullptr, WORD},
    {kRead, "merge-file", nullptr, READ { d.open[g.key] = 1; }},
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
    {kRead, "window-size", nullptr, READ { r.leave(g, "windows of attention are not read"); }},
    {kRead, "batch-size", nullptr, READ { d.spec.shape.micro_batch = r.integer(g, 1, kMostBatch);
                                          d.open["micro-batch-size"] = 1; }},
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
    {kRead, "recompute-activations", nullptr, READ { if (r.boolean(g)) d.words["recompute-granularity"] =
       "selective"; }},
    {kRead, "checkpoint-activations", nullptr, READ { if (r.boolean(g)) d.words["recompute-granularity"] = "full"; }},
    {kRead, "checkpoint-num-layers", nullptr,
     READ { d.open["recompute-num-layers"] = static_cast<double>(r.integer(g, 0, kMostLayers)); }},
    {kRead, "activations-checkpoint-method", nullptr,
     READ { d.words["recompute-method"] = r.word(g, {"uniform", "block"}); d.words["recompute-granularity"] =
       "full"; }},
    {kRead, "activations-checkpoint-num-layers", nullptr,
     READ { d.open["recompute-num-layers"] = static_cast<double>(r.integer(g, 0, kMostLayers)); }},
    {kRead, "distribute-checkpointed-activations", nullptr,
     READ { d.spec.recomputation.partition_checkpoints = r.boolean(g); }},
    {kRead, "partition-activations", nullptr, READ { d.spec.recomputation.partition_checkpoints = r.boolean(g); }},
    {kRead, "checkpoint-in-cpu", nullptr, READ { if (r.boolean(g)) d.spec.offload.activations = Space::host; }},
    {kRead, "fp8-hybrid", nullptr, READ { if (r.boolean(g)) d.spec.numerics.precision = DType::fp8; }},
    {kRead, "fp8-e4m3", nullptr, READ { if (r.boolean(g)) d.spec.numerics.precision = DType::fp8; }},
    {kRead, "train-samples", nullptr, READ { d.samples = r.integer(g, 1, kMostSteps); }},
    {kRead, "lr-warmup-samples", nullptr, WHOLE(0, kMostSteps)},
    {kRead, "lr-warmup-fraction", nullptr, READ { d.open[g.key] = r.number(g, 0, 1); }},
    {kRead, "lr-decay-samples", nullptr, WHOLE(0, kMostSteps)},
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
    {kRead, "topk", nullptr, READ { d.open["moe-router-topk"] = static_cast<double>(r.integer(g, 1, 1 << 20)); }},
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
#undef WHOLE
#undef OPEN
#undef MARK
#undef WORD

// clang-format on

}  // namespace

std::span<const Setting> megatron_settings_table() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> out(std::begin(kCarried), std::end(kCarried));
    for (const PassedOver& reason : megatron_passed_over())
      for (const char* const name : reason.flags)
        out.push_back({"", name, nullptr, nullptr, reason.because, reason.matters});
    return out;
  }();
  return all;
}

}  // namespace orrery::plan
