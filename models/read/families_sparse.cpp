// Families whose attention reads blocks of tokens that an indexer chooses, or runs of them in one key each. Keys and
// their defaults come from the classes' configurations in Hugging Face's transformers 5, names from the classes'
// modules.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// -- MiniMax-M3 -------------------------------------------------------------------------------------------------------

// MiniMax 2026, "MiniMax-M3": behind the first layers, attention reads blocks of tokens that an indexer chooses;
// gpt-oss's clamped SwiGLU; experts by sigmoids with a balancing bias, beside one that every token takes.
void as_minimax_m3(Model& m) {
  as_deepseek_v3(m);
  m.activation = Activation::clamped_swiglu;
  m.qk_norm = true;
  m.rotary_share = 0.5;
  m.rope_theta = 5e6;
}

constexpr const char* kSparse = "sparse_attention_config";

/// Which layers have an indexer, as the class or as the published files say it. Reading only.
void minimax_m3_layers(ConfigKeys& k, Model& m) {
  const bool typed = k.given("layer_types");
  const std::vector<bool> sparse = typed ? k.which_are("layer_types", "minimax_m3_sparse", "full_attention")
                                         : k.which_are("sparse_attention_config.sparse_attention_freq", "1", "0");
  const auto first = std::find(sparse.begin(), sparse.end(), true);
  if (first == sparse.end()) {
    m.indexer = {};
    return;
  }
  m.indexer.after = first - sparse.begin();
  if (std::find(first, sparse.end(), false) != sparse.end())
    k.refuse(typed ? "layer_types" : kSparse, "layers that read chosen blocks are not all behind the others",
             "some first layers that read everything, then layers that read chosen blocks");
}

/// What the files say of an indexer and its class has fixed. Reading only.
void minimax_m3_published(ConfigKeys& k, const Model& m) {
  std::string score = "max";
  std::int64_t first = 0;
  bool used = true;
  k.text({"sparse_attention_config.sparse_score_type"}, score, "max");
  k.count({"sparse_attention_config.sparse_init_block"}, first, 0, kMostSequence, 0);
  k.flag({"sparse_attention_config.use_sparse_attention"}, used, true);
  if (score != "max" || first != 0 || !used)
    k.refuse(kSparse, "blocks are chosen by their best tokens' scores alone, in its class",
             "sparse_score_type max, sparse_init_block 0, use_sparse_attention true");
  const std::vector<bool> without = k.which_are("sparse_attention_config.sparse_disable_index_value", "1", "0");
  for (std::size_t layer = 0; layer < without.size(); ++layer)
    if (!without[layer] && m.indexer.reads(static_cast<std::int64_t>(layer)))
      return k.refuse(kSparse, "an indexer's small heads have no values, in its class",
                      "sparse_disable_index_value 1 for all layers with an indexer");
}

void minimax_m3_indexer(ConfigKeys& k, Model& m) {
  Indexer& i = m.indexer;
  if (!k.reads() && !i.any()) return;
  std::int64_t blocks = i.block > 0 ? i.chosen / i.block : 0, beside = 1;
  k.count({"index_n_heads", "sparse_attention_config.sparse_num_index_heads"}, i.heads, 1, kMostWidth, 4);
  k.count({"index_head_dim", "sparse_attention_config.sparse_index_dim"}, i.width, 1, kMostWidth, 128);
  k.count({"index_block_size", "sparse_attention_config.sparse_block_size"}, i.block, 1, kMostSequence, 128);
  k.count({"index_topk_blocks", "sparse_attention_config.sparse_topk_blocks"}, blocks, 1, kMostSequence, 16);
  k.count({"index_local_blocks", "sparse_attention_config.sparse_local_block"}, beside, 0, blocks, 1);
  if (k.reads()) {
    i.chosen = blocks * i.block;
    minimax_m3_layers(k, m);
    return minimax_m3_published(k, m);
  }
  std::vector<std::size_t> which;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) which.push_back(i.reads(layer) ? 1 : 0);
  k.layer_words("layer_types", {"full_attention", "minimax_m3_sparse"}, which);
}

void minimax_m3_experts(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  experts_keys(k, m, "num_local_experts");
  k.count({"intermediate_size"}, e.hidden, 1, kMostWidth, 3072);
  k.count({"shared_intermediate_size"}, e.shared, 1, kMostWidth, 3072);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 2);
  k.flag({"use_routing_bias"}, e.balance_bias, true);
  if (k.reads() && !e.balance_bias) e.bias_rate = 0;
  if (k.reads()) k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, 0);
  Model by_flags = m;
  k.sparse_layers("mlp_layer_types", m);
  k.sparse_layers("moe_layer_freq", by_flags);
  if (k.given("moe_layer_freq") && !k.given("mlp_layer_types")) e = by_flags.experts;
  if (!k.reads()) return;
  std::int64_t same = e.hidden, one = 1;
  k.count({"moe_intermediate_size"}, same, 1, kMostWidth, e.hidden);
  k.count({"n_shared_experts"}, one, 0, kMostExperts, 1);
  if (same != e.hidden || one != 1)
    k.refuse(one != 1 ? "n_shared_experts" : "moe_intermediate_size",
             "its class has one shared expert, and experts as wide as intermediate_size", "1, and the same width");
  std::string scores = "sigmoid";
  k.text({"scoring_func"}, scores, "sigmoid");
  if (scores != "sigmoid")
    k.refuse("scoring_func", "experts are chosen in a way that its class does not have", "sigmoid");
}

void minimax_m3_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 1, kMostLayers, 60);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth, 6144);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth, 64);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, 4);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  k.count({"dense_intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 12288);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 524288);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attention_dropout", m.dropout.attention);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 5e6);
  rotated_columns(k, m, 64);
  k.rope_scaling(m);
  k.activation({"hidden_act"}, m, {{"swigluoai", Activation::clamped_swiglu}, {"silu", Activation::clamped_swiglu}},
               "minimax_m3");
  constexpr double kSlope = 1.702, kLimit = 7;
  double slope = kSlope, limit = kLimit;
  k.real({"swiglu_alpha"}, slope, 0, 1e3, kSlope);
  k.real({"swiglu_limit"}, limit, 0, 1e6, kLimit);
  if (slope != kSlope || limit != kLimit)
    k.refuse(limit != kLimit ? "swiglu_limit" : "swiglu_alpha", "a SwiGLU of another slope, or not clamped at 7",
             "swiglu_alpha 1.702 and swiglu_limit 7");
  k.only("attention_output_gate", false, "its class has no gate of attention's output");
  k.only("use_qk_norm", true, "heads of q and k have norms in its class");
  minimax_m3_indexer(k, m);
  minimax_m3_experts(k, m);
  if (!k.reads()) return;
  std::string of_heads = "per_head";
  k.text({"qk_norm_type"}, of_heads, "per_head");
  if (of_heads != "per_head") k.refuse("qk_norm_type", "its class norms each head by itself", "per_head");
  k.fixed("use_gemma_norm", "true", "norms' weights are stored less one in its class");
  const bool modules = k.given("num_mtp_modules");
  further_left_out(k, modules ? "num_mtp_modules" : "num_nextn_predict_layers",
                   "the modules that predict further tokens are left out, as its class has none");
  if (modules) k.unused({"num_nextn_predict_layers"});
}

WeightNames minimax_m3_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kStacked);
  names.norm_offset = 1;
  names.stacked_by_rows = true;
  for (auto& [logical, file] : names.parts) {
    const std::string_view one = logical;
    if (one == "mlp.gate" || one == "mlp.up") file = "mlp.gate_up_proj";
  }
  for (const auto& pair : WeightNames::Pairs{{"attn.index.q", "self_attn.indexer.q_proj"},
                                             {"attn.index.k", "self_attn.indexer.k_proj"},
                                             {"attn.index.q_norm", "self_attn.indexer.q_norm"},
                                             {"attn.index.k_norm", "self_attn.indexer.k_norm"},
                                             {"mlp.router.balance", "mlp.gate.e_score_correction_bias"},
                                             {"mlp.shared.gate", "mlp.shared_experts.gate_up_proj"},
                                             {"mlp.shared.up", "mlp.shared_experts.gate_up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_experts.down_proj"}})
    names.parts.push_back(pair);
  return names;
}

// -- DeepSeek-V4 ------------------------------------------------------------------------------------------------------

// DeepSeek-AI 2026, "DeepSeek-V4", section 2: four residual streams, attention to a window and to runs of tokens in one
// key, experts by roots of softplus; the first layers' experts are chosen by the tokens' ids.
void as_deepseek_v4(Model& m) {
  as_deepseek_v3(m);
  m.rope_theta = 10000;
  m.experts.scores = Scores::sqrt_softplus;
  m.experts.hashed = 3;
  m.experts.limit = 10;
  m.streams.count = 4;
}

constexpr std::array<Mixer, 3> kRunMixers = {Mixer::local, Mixer::compressed, Mixer::condensed};

/// Which runs each layer reads, in the class's words or as the published files' lengths of runs. Reading only.
void deepseek_v4_layers(ConfigKeys& k, Model& m, std::int64_t modules) {
  const CompressedAttention& a = m.compressed;
  std::vector<std::size_t> kinds;
  const char* key = "layer_types";
  k.layer_words(key, {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"}, kinds);
  if (!k.given(key)) {
    key = "compress_ratios";
    for (const double run : k.each_layers(key, m, modules)) {
      const auto tokens = static_cast<std::int64_t>(run);
      if (tokens != 0 && tokens != a.short_run && tokens != a.long_run)
        return k.refuse(key, "runs are of two lengths", fmt::format("0, {} or {}", a.short_run, a.long_run));
      kinds.push_back(tokens == 0 ? 0 : tokens == a.short_run ? 1 : 2);
    }
  }
  if (kinds.empty())  // the class's own: two layers of long runs, then both kinds in turn
    for (std::int64_t i = 0; i < m.layers; ++i) kinds.push_back(i < 2 || i % 2 == 0 ? 2 : 1);
  std::vector<BlockParts> blocks;
  for (const std::size_t kind : kinds) blocks.push_back({kRunMixers[kind], Feed::experts});
  k.blocks(key, std::move(blocks), m);
}

void deepseek_v4_attention(ConfigKeys& k, Model& m, std::int64_t modules) {
  CompressedAttention& a = m.compressed;
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 512);
  k.count({"q_lora_rank"}, a.q_rank, 1, kMostWidth, 1024);
  double share = 0;
  if (k.reads())
    k.real({"partial_rotary_factor", "rope_parameters.main.partial_rotary_factor",
            "rope_parameters.compress.partial_rotary_factor"},
           share, 0, 1, 0);
  constexpr double kUsualShare = 0.125;  // of a head
  const double turned = static_cast<double>(m.head_dim) * (share > 0 ? share : kUsualShare);
  k.count({"qk_rope_head_dim"}, a.rope, 2, kMostWidth, static_cast<std::int64_t>(turned));
  k.count({"sliding_window"}, a.window, 1, kMostSequence, 128);
  k.count({"compress_rates.compressed_sparse_attention", "compress_rate_csa"}, a.short_run, 2, kMostSequence, 4);
  k.count({"compress_rates.heavily_compressed_attention", "compress_rate_hca"}, a.long_run, 2, kMostSequence, 128);
  k.count({"o_groups"}, a.out_groups, 1, kMostWidth, 8);
  k.count({"o_lora_rank"}, a.out_rank, 1, kMostWidth, 1024);
  k.real({"compress_rope_theta", "rope_parameters.compress.rope_theta"}, a.theta, 1, 1e12, 160000);
  k.count({"index_n_heads"}, m.indexer.heads, 1, kMostWidth, 64);
  k.count({"index_head_dim"}, m.indexer.width, 1, kMostWidth, 128);
  k.count({"index_topk"}, m.indexer.chosen, 1, kMostSequence, 512);
  if (!k.reads()) return;
  std::int64_t shared = 1;
  k.count({"num_key_value_heads"}, shared, 1, kMostWidth, 1);
  if (shared != 1) k.refuse("num_key_value_heads", "all heads share one key in its class", "1");
  double drops = 0;
  rate(k, "attention_dropout", drops);
  if (drops > 0) k.refuse("attention_dropout", "attention to runs of tokens drops nothing here", "0");
  m.kv_heads = m.heads;  // of no layer
  deepseek_v4_layers(k, m, modules);
  const auto chooses = [](const BlockParts& one) { return one.mixer == Mixer::compressed; };
  if (m.blocks_with(m.layers, chooses) == 0) m.indexer = {};  // it chooses among short runs
  k.rope_scaling(m);
  k.fixed("rope_parameters.main.rope_type", "default", "layers that read no runs rotate at rates that are not scaled");
  // The class multiplies cosines and sines by nothing unless the file says so.
  if (m.rope_scaling.kind == RopeKind::yarn)
    k.real({"rope_scaling.attention_factor", "rope_parameters.compress.attention_factor",
            "rope_parameters.attention_factor"},
           m.rope_scaling.attention, 0, 1e6, 1);
}

void deepseek_v4_experts(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  k.count({"n_routed_experts", "num_local_experts", "num_experts"}, e.count, 1, kMostExperts, 256);
  k.count({"num_experts_per_tok"}, e.chosen, 1, kMostExperts, 6);
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 2048);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 1.5);
  k.real({"swiglu_limit"}, e.limit, 0, 1e6, 10);
  k.count({"num_hash_layers"}, e.hashed, 0, kMostLayers, 3);
  k.only("norm_topk_prob", true, "its class divides the chosen weights by their sum");
  if (!k.reads()) return;
  std::int64_t shared = 1;
  k.count({"n_shared_experts"}, shared, 0, kMostExperts, 1);
  if (shared != 1) k.refuse("n_shared_experts", "its class has one shared expert", "1");
  e.shared = m.ffn_hidden = e.hidden;
  std::vector<std::size_t> kinds;
  k.layer_words("mlp_layer_types", {"moe", "hash_moe"}, kinds);
  if (!kinds.empty()) {
    e.hashed = std::find(kinds.begin(), kinds.end(), 0U) - kinds.begin();
    if (std::find(kinds.begin() + e.hashed, kinds.end(), 1U) != kinds.end())
      k.refuse("mlp_layer_types", "layers whose experts are chosen by ids are the first ones", "hash_moe first");
  }
  for (const auto& [key, wanted] : {std::pair{"scoring_func", "sqrtsoftplus"}, {"topk_method", "noaux_tc"}}) {
    std::string given = wanted;
    k.text({key}, given, wanted);
    if (given != wanted) k.refuse(key, "experts are chosen in a way that its class does not have", wanted);
  }
}

void deepseek_v4_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 1, kMostLayers, 43);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth, 4096);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth, 64);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 1048576);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.real({"rope_theta", "rope_parameters.main.rope_theta"}, m.rope_theta, 1, 1e12, 10000);
  silu(k, m, "deepseek_v4");
  for (const char* key : {"attention_bias", "mlp_bias"}) no_biases(k, key);
  k.count({"hc_mult"}, m.streams.count, 1, kMostStreams, 4);
  k.count({"hc_sinkhorn_iters"}, m.streams.steps, 0, kMostSequence, 20);
  k.unused({"hc_eps"});
  std::int64_t modules = 0;
  if (k.reads()) k.count({"num_nextn_predict_layers"}, modules, 0, kMostLayers, 1);
  deepseek_v4_attention(k, m, modules);
  deepseek_v4_experts(k, m);
  if (modules > 0) k.remark("the modules that predict further tokens are left out, as its class has none");
}

const char* untrained(const Model&) {
  return "attention to runs of tokens and several residual streams are predicted, and not executed";
}

}  // namespace

std::vector<FamilyTraits> sparse_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::minimax_m3, "minimax_m3_vl_text", "MiniMax-M3", "MiniMaxM3SparseForCausalLM", "MiniMaxM3",
            as_minimax_m3, minimax_m3_config, minimax_m3_names()),
      entry(Family::deepseek_v4, "deepseek_v4", "DeepSeek-V4", "DeepseekV4ForCausalLM", "DeepseekV4", as_deepseek_v4,
            deepseek_v4_config, llama_names())};
  all[1].mixture = true;
  all[1].computes_else = untrained;
  all[1].vocab = 129280;
  all[1].model_types.push_back("deepseek_ref");
  all[0].name = "minimax_m3";
  for (const char* type : {"minimax_m3", "minimax_m3_vl"}) all[0].model_types.push_back(type);
  all[0].mixture = true;
  all[0].names = stack_experts;
  return all;
}

}  // namespace orrery::models
