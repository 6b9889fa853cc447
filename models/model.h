#pragma once
/// Model: what is trained, as plain data. It knows neither devices nor seconds. Letters used for shapes everywhere: B
/// sequences in a micro-batch, T tokens per sequence, C hidden width, H heads, G key/value heads, D head width, F width
/// of the MLP, V vocabulary, n = B*T tokens.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/activation.h"
#include "models/experts.h"
#include "models/family.h"
#include "models/lora.h"
#include "models/recommender.h"
#include "models/rope.h"
#include "models/state_space.h"

namespace orrery::models {

enum class Normalisation { layer_norm, rms_norm };
enum class Gelu { tanh, erf };  ///< GPT-2's approximation by tanh, or the exact x Phi(x) (BERT)
enum class Positions {
  learned,
  rope,
  alibi,  ///< only a slope on the distance between query and key (Press, Smith, Lewis 2022)
  none,   ///< the mask and the mixers alone say what came before (Nemotron-H)
};

/// Dropout rates in training (Srivastava et al. 2014): the share of values set to zero; the others are scaled up by
/// 1/(1 - rate). Evaluation and sampling drop nothing.
struct Dropout {
  double embedding = 0;  ///< on the sum of the embeddings (after BERT's norm): embd_pdrop
  double attention = 0;  ///< on attention probabilities: attn_pdrop
  double residual = 0;   ///< on what attention and MLP add to the residual: resid_pdrop
  [[nodiscard]] bool any() const { return embedding > 0 || attention > 0 || residual > 0; }
  bool operator==(const Dropout&) const = default;
};

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): keys and values are made from a narrow
/// vector of each token, so that only this vector is cached, with `rope` rotated key columns that all heads share. A
/// head's q and k have nope + rope columns, its v has `value`.
struct LatentAttention {
  std::int64_t q_rank = 0;   ///< width of the vector that q is made from; 0: directly from the token
  std::int64_t kv_rank = 0;  ///< 0: ordinary attention
  std::int64_t nope = 0, rope = 0, value = 0;
  bool operator==(const LatentAttention&) const = default;
  [[nodiscard]] bool any() const { return kv_rank > 0; }
};

/// Attention that reads chosen tokens alone (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1): small heads of their own
/// score the tokens before one, and attention reads the best. They learn attention's own probabilities over the chosen
/// tokens, and pass no gradient on. Predicted, not executed.
struct Indexer {
  std::int64_t heads = 0, width = 0;  ///< of queries; all share one key of that width
  std::int64_t chosen = 0;            ///< tokens that a token reads; 0: no indexer
  /// After the first `first` layers, which all choose, only the last of every `every` does; the layers between read
  /// what was chosen before them, and have no indexer (GLM-5.2).
  std::int64_t every = 1, first = 0;
  /// Of attention without a narrow vector (MiniMax-M3): neighbouring tokens, of which all are chosen or none, `chosen`
  /// in all; the small heads score their blocks by their best tokens, have norms, and no weights. 0: single tokens.
  std::int64_t block = 0;
  std::int64_t after = 0;  ///< first layers whose attention reads everything (MiniMax-M3)
  bool operator==(const Indexer&) const = default;
  /// Whether attention of a layer reads chosen tokens alone; and whether it chooses them itself.
  [[nodiscard]] bool reads(std::int64_t layer) const { return any() && layer >= after; }
  [[nodiscard]] bool chooses(std::int64_t layer) const {
    return layer >= after && (layer < first || (layer - first + 1) % every == 0);
  }
  [[nodiscard]] bool any() const { return chosen > 0; }
};

/// Attention to a window of tokens and to runs of earlier ones, each run in one key (DeepSeek-AI 2026, "DeepSeek-V4",
/// section 2.3). All heads share one key of head_dim columns, which is their value too; queries come from a narrow
/// vector; the heads' output returns by two products, the first of each group of heads by itself. Which layers read
/// which runs is their mixer (models/state_space.h); chosen runs are the model's `indexer`'s. Predicted, not executed.
struct CompressedAttention {
  std::int64_t q_rank = 0;                    ///< 0: none
  std::int64_t rope = 0;                      ///< columns that turn
  std::int64_t window = 0;                    ///< tokens that each reads as they are
  std::int64_t short_run = 0, long_run = 0;   ///< tokens of a run: of those chosen (which overlap), of all
  std::int64_t out_groups = 1, out_rank = 0;  ///< groups of heads, and columns that each becomes
  double theta = 0;                           ///< of runs, and of layers that read some
  bool operator==(const CompressedAttention&) const = default;
  [[nodiscard]] bool any() const { return q_rank > 0; }
};

/// Several residual streams (Xie et al. 2025, "mHC: Manifold-Constrained Hyper-Connections"): each half of a block
/// reads a mixture of them, and what it makes is added to all, which are mixed by a matrix of each token that is made
/// doubly stochastic in some steps. Predicted, not executed.
struct Streams {
  std::int64_t count = 1;
  std::int64_t steps = 20;  ///< of Sinkhorn and Knopp
  bool operator==(const Streams&) const = default;
  [[nodiscard]] bool any() const { return count > 1; }
};

/// Multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 2.2): a module behind the last block
/// predicts the token after the next one. It joins the last block's output and the next token's embedding, each behind
/// a norm of its own, runs a block more, and shares the token table and the head.
struct FurtherPrediction {
  std::int64_t modules = 0;  ///< 0 or 1
  double weight = 0.3;       ///< of its loss (section 4.2: 0.3 for the first 10 T tokens, then 0.1)
  bool operator==(const FurtherPrediction&) const = default;
  [[nodiscard]] bool any() const { return modules > 0; }
};

/// Each layer's own input: a row of a table of its own and a product of the token's embedding, joined, which a gate
/// lets into the residual behind the block (Gemma 3n and 4). Predicted, not executed.
struct LayerInputs {
  std::int64_t width = 0;  ///< columns that a layer gets; 0: none
  std::int64_t vocab = 0;  ///< rows of the table, which has the columns of all layers
  bool operator==(const LayerInputs&) const = default;
  [[nodiscard]] bool any() const { return width > 0; }
};

/// Layers without keys and values of their own (Gemma 3n and 4): the last ones read those of the last layer before them
/// that sees as much as they do. Predicted, not executed.
struct SharedKeys {
  std::int64_t layers = 0;  ///< 0: none
  bool widens = false;      ///< their MLPs are twice as wide as the others'
  bool operator==(const SharedKeys&) const = default;
  [[nodiscard]] bool any() const { return layers > 0; }
};

/// The properties in which the blocks of one model may differ.
struct BlockVariant {
  BlockParts parts;
  bool sees_all = true;  ///< no window
  bool unrotated = false;
  bool chooses = true;   ///< has the model's indexer, if that has one
  bool borrows = false;  ///< reads another layer's keys and values
  auto operator<=>(const BlockVariant&) const = default;
};

/// A set of features. None of them depends on a family; a family only decides what a file leaves out
/// (models/read/families.h).
struct Model {
  std::string name;
  Family family = Family::gpt;
  std::int64_t layers = 0;        ///< transformer blocks
  std::int64_t hidden = 0;        ///< C
  std::int64_t heads = 0;         ///< H
  std::int64_t kv_heads = 0;      ///< G; equals heads unless grouped-query attention
  std::int64_t head_dim = 0;      ///< D; usually hidden / heads
  std::int64_t value_dim = 0;     ///< columns of a head of v where they are not D (MiMo-V2); 0: D
  std::int64_t ffn_hidden = 0;    ///< F
  std::int64_t vocab = 0;         ///< V as published, not padded
  std::int64_t max_sequence = 0;  ///< rows of the learned position table
  std::int64_t token_types = 0;   ///< BERT's segment embeddings; 0 = none
  Normalisation normalisation = Normalisation::layer_norm;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  bool causal = true;
  bool pre_norm = true;         ///< BERT normalises after the residual
  bool bias = true;             ///< linear layers and norms carry biases
  bool norm_bias = true;        ///< LayerNorms carry biases (MPT, Command R and DBRX: weights alone)
  bool norm_weight = true;      ///< norms have weights (OLMo 1, nanochat: neither weights nor biases)
  bool qkv_bias = false;        ///< q, k and v have biases although the others do not (Qwen2)
  bool attention_bias = true;   ///< where linear layers carry biases, so do attention's (GPT-J: the MLP's alone)
  bool out_bias = false;        ///< attention's last product has a bias although q, k and v may have none (GPT-Neo)
  bool head_bias = false;       ///< the head adds a bias to each word's logit (GPT-J, Phi)
  bool tied_embeddings = true;  ///< the head uses the token table
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  double initial_stddev = 0.02;  ///< with pre_norm, residual projections are scaled by 1/sqrt(2*layers) (GPT-2)
  Gelu gelu = Gelu::tanh;
  /// Attention and MLP read the same residual: y = x + attention(norm(x)) + mlp(norm(x)) (Wang and Komatsuzaki 2021,
  /// GPT-J; GPT-NeoX, Falcon), through one shared norm or one each.
  bool parallel = false;
  bool shared_norm = false;
  bool output_norm = false;  ///< more norms after attention and MLP, before the residual (Gemma 2)
  bool input_norm = true;    ///< norms before attention and MLP; false: output_norm's alone (OLMo 2)
  /// What is added to is not what a norm reads but what it makes (MiniMax-01, section 2: DeepNorm's residual), times a
  /// factor: beside attention, beside other mixers, beside MLPs and experts.
  bool normed_skip = false;
  std::array<double, 3> skip_scales = {1, 1, 1};
  bool embedding_norm = false;       ///< a norm after the embedding, as in BERT, but with pre_norm (BLOOM)
  bool scaled_embedding = false;     ///< token rows times sqrt(hidden) (Vaswani et al. 2017, section 3.4; Gemma)
  double embedding_scale = 1;        ///< token rows times this (Granite)
  double residual_scale = 1;         ///< what a block's halves add to the residual times this (Granite)
  double logit_scale = 1;            ///< logits times this (Granite, Command R)
  bool qk_norm = false;              ///< RMSNorm of each head of q and k before rotation (Qwen3)
  bool joint_qk_norm = false;        ///< with qk_norm: one RMSNorm over all heads of q, one over k's (OLMo 2)
  bool late_qk_norm = false;         ///< with qk_norm: after the rotation (HunYuan)
  bool value_norm = false;           ///< with qk_norm: RMSNorm of each head of v too, without a weight (Gemma 4)
  bool keys_as_values = false;       ///< with value_norm: layers that see all norm k for v, and make none (Gemma 4)
  double rotary_share = 1;           ///< the share of a head's columns that rotate, its first ones
  double window_rotary_share = 0;    ///< in layers with a window (Step 3.5); 0: as in the others
  std::int64_t position_offset = 0;  ///< rows of the position table before the first position (OPT: 2)
  double attention_cap = 0;          ///< scores become cap tanh(score/cap) (Gemma 2); 0: no cap
  double logit_cap = 0;              ///< the same for the logits
  double query_scale = 0;            ///< scores are divided by its square root; 0: by that of head_dim
  std::int64_t window = 0;           ///< how many tokens a token sees, itself included; 0: all before it
  std::int64_t window_period = 0;    ///< every n-th layer sees all tokens (Gemma 2: 2); 0: none does
  bool full_first = false;           ///< with window_period: each n-th layer from the first on (GPT-Neo)
  std::vector<std::int64_t> full_layers;  ///< in place of a period: the layers that see all tokens, in order
  std::int64_t window_heads = 0;          ///< H of layers with a window (Step 3.5); 0: as the other layers
  std::int64_t window_kv_heads = 0;       ///< G of layers with a window (MiMo-V2); 0: as the other layers
  std::int64_t window_head_dim = 0;       ///< D of layers with a window (Gemma 4); 0: as the other layers
  /// For layers with a window, which then rotate at their own rates, never scaled (Gemma 3); 0: as the other layers.
  double window_theta = 0;
  std::int64_t unrotated_period = 0;  ///< every n-th layer does not rotate (SmolLM3, Llama 4: 4); 0: all do
  /// The share of a sequence's tokens that are predicted: BERT's masked-language head (Devlin et al. 2019, section
  /// 3.1), computed only at those rows. 0: for every token, the next one is predicted.
  double masked_fraction = 0;
  bool next_sentence = false;  ///< BERT's other head: whether the second segment follows the first
  Dropout dropout;
  Lora lora;                  ///< adapters that train in place of everything else
  Experts experts;            ///< in place of some layers' MLPs
  FurtherPrediction further;  ///< behind the last block
  LatentAttention latent;     ///< in place of q, k and v made from the token; head_dim is then nope + rope
  LayerInputs layer_inputs;
  CompressedAttention compressed;  ///< of the blocks whose mixer reads by it
  Streams streams;
  SharedKeys shared_keys;
  Indexer indexer;               ///< of latent attention with a narrow vector for queries
  bool attention_gate = false;   ///< attention's output is scaled by a sigmoid of a product with the token (Qwen3-Next)
  bool head_gate = false;        ///< the same for each head as a whole (Step 3.5)
  double value_scale = 1;        ///< attention's output times this (MiMo-V2)
  double score_factor = 1;       ///< scores times this (Falcon-H1)
  double gate_scale = 1;         ///< what a gated MLP's activation takes, times this (Falcon-H1)
  double mlp_scale = 1;          ///< what an MLP adds to the residual, times this (Falcon-H1)
  bool attention_sinks = false;  ///< each head has a learned logit beside its scores (gpt-oss)
  bool sinks_in_windows = false;  ///< with attention_sinks: in layers with a window alone (MiMo-V2)
  StateSpace ssm;                 ///< of the blocks whose mixer keeps a state
  std::int64_t conv_taps = 0;  ///< tokens that a gated short convolution reads, its own included; 0: no block has one
  /// What each block consists of, repeated from the first block on; empty: attention, then an MLP or, where `experts`
  /// says so, experts.
  std::vector<BlockParts> pattern;
  /// Only for family dlrm: the tables and MLPs that it has instead of a stack of blocks. The members above then mean
  /// nothing.
  std::optional<Recommender> recommender;
  std::vector<std::string> sources;  ///< where each number comes from
  bool operator==(const Model&) const = default;
  /// Whether the last stage has the embedding's token table, too.
  [[nodiscard]] bool shares_table() const { return tied_embeddings || further.any(); }
  /// Columns of a token between layers.
  [[nodiscard]] std::int64_t carried() const { return hidden * streams.count; }
  /// All blocks: the last may be that of a module that predicts further.
  [[nodiscard]] std::int64_t blocks() const { return layers + further.modules; }
  [[nodiscard]] bool windowed(std::int64_t layer) const {
    if (window == 0 || !full_layers.empty())
      return window > 0 && !std::binary_search(full_layers.begin(), full_layers.end(), layer);
    return window_period == 0 || (layer + (full_first ? 0 : 1)) % window_period != 0;
  }
  /// Every layer sees all tokens.
  void drop_window() {
    window = window_period = 0, window_theta = 0;
    full_first = false;
    full_layers.clear();
  }
  [[nodiscard]] std::int64_t kv_heads_of(std::int64_t layer) const {
    return window_kv_heads > 0 && windowed(layer) ? window_kv_heads : kv_heads;
  }
  [[nodiscard]] std::int64_t heads_of(std::int64_t layer) const {
    return window_heads > 0 && windowed(layer) ? window_heads : heads;
  }
  [[nodiscard]] std::int64_t head_dim_of(std::int64_t layer) const {
    return window_head_dim > 0 && windowed(layer) ? window_head_dim : head_dim;
  }
  /// Columns of a head of v.
  [[nodiscard]] std::int64_t value_columns(std::int64_t layer) const {
    return value_dim > 0 ? value_dim : head_dim_of(layer);
  }
  /// Whether a layer makes v by a product of its own.
  [[nodiscard]] bool makes_values(std::int64_t layer) const { return !keys_as_values || windowed(layer); }
  /// Whether it reads the keys and values of a layer before it.
  [[nodiscard]] bool borrows_keys(std::int64_t layer) const {
    return shared_keys.any() && layer < layers && layer >= layers - shared_keys.layers;
  }
  /// F of its MLP.
  [[nodiscard]] std::int64_t ffn_of(std::int64_t layer) const {
    return (shared_keys.widens && borrows_keys(layer) ? 2 : 1) * ffn_hidden;
  }
  [[nodiscard]] bool has_sinks(std::int64_t layer) const {
    return attention_sinks && (!sinks_in_windows || windowed(layer));
  }
  [[nodiscard]] bool rotates(std::int64_t layer) const {
    return positions == Positions::rope && (unrotated_period == 0 || (layer + 1) % unrotated_period != 0);
  }
  [[nodiscard]] BlockParts parts(std::int64_t layer) const {
    if (!pattern.empty()) return pattern[static_cast<std::size_t>(layer) % pattern.size()];
    return {Mixer::attention, experts.in_layer(layer) ? Feed::experts : Feed::mlp};
  }
  /// Whether some blocks read the tokens of a sequence one after another.
  [[nodiscard]] bool reads_in_order() const;
  [[nodiscard]] bool has_experts(std::int64_t layer) const { return parts(layer).feed == Feed::experts; }
  /// How many of the first `count` blocks a predicate of their parts holds for.
  template <class Holds>
  [[nodiscard]] std::int64_t blocks_with(std::int64_t count, const Holds& holds) const {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i) found += holds(parts(i)) ? 1 : 0;
    return found;
  }
  /// How many of the first `count` blocks have experts.
  [[nodiscard]] std::int64_t expert_layers(std::int64_t count) const {
    return blocks_with(count, [](const BlockParts& one) { return one.feed == Feed::experts; });
  }
  [[nodiscard]] BlockVariant variant(std::int64_t layer) const {
    const BlockParts of = parts(layer);
    if (!attends(of)) return {of, true, true};
    return {of, !windowed(layer), !rotates(layer), indexer.chooses(layer), borrows_keys(layer)};
  }
  /// Whether the model has several variants of blocks.
  [[nodiscard]] bool has_variants() const {
    const bool mixed = experts.any() && (experts.first_dense > 0 || experts.period > 1);
    return mixed || pattern.size() > 1 || indexer.every > 1 || indexer.after > 0 || shared_keys.any() ||
           (window > 0 && (window_period > 0 || !full_layers.empty())) || unrotated_period > 0;
  }
  /// The columns of a head that rotate, where a window decides the head's width.
  [[nodiscard]] std::int64_t rotary_columns(bool windowed = false) const {
    const std::int64_t width = windowed && window_head_dim > 0 ? window_head_dim : head_dim;
    const double share = windowed && window_rotary_share > 0 ? window_rotary_share : rotary_share;
    return static_cast<std::int64_t>(share * static_cast<double>(width) + 1e-9);
  }
};

}  // namespace orrery::models
