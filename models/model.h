#pragma once
/// Model: what is trained, as plain data. It knows neither a device nor a second.
/// Letters used for shapes everywhere: B sequences in a micro-batch, T tokens per sequence, C hidden width, H heads,
/// G key/value heads, D head width, F width of the MLP, V vocabulary, n = B*T tokens.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/activation.h"
#include "models/experts.h"
#include "models/family.h"
#include "models/lora.h"
#include "models/recommender.h"

namespace orrery::models {

enum class Normalisation { layer_norm, rms_norm };
enum class Gelu { tanh, erf };  ///< GPT-2's tanh form, or x Phi(x) as it is (BERT)
enum class Positions {
  learned,
  rope,
  alibi,  ///< none but a slope on the distance of query and key (Press, Smith, Lewis 2022)
};

/// Rates of dropout (Srivastava et al. 2014) while a model trains: the share of values that are set to zero, the others
/// being scaled up by 1/(1 - rate). Evaluation and sampling are without.
struct Dropout {
  double embedding = 0;  ///< of the sum of the embeddings (behind BERT's norm): embd_pdrop
  double attention = 0;  ///< of the attention's probabilities: attn_pdrop
  double residual = 0;   ///< of what attention and MLP add to the residual: resid_pdrop
  [[nodiscard]] bool any() const { return embedding > 0 || attention > 0 || residual > 0; }
  bool operator==(const Dropout&) const = default;
};

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): keys and values are made of a narrow
/// vector of each token, which alone is cached, and of which `rope` columns of key, turned, are shared by all heads. A
/// head's q and k have nope + rope columns, its v has `value`.
struct LatentAttention {
  std::int64_t q_rank = 0;   ///< q is made of so narrow a vector; 0: of the token at once
  std::int64_t kv_rank = 0;  ///< 0: attention as others have it
  std::int64_t nope = 0, rope = 0, value = 0;
  bool operator==(const LatentAttention&) const = default;
  [[nodiscard]] bool any() const { return kv_rank > 0; }
};

/// A set of features, none of which knows a family: that only says what a file leaves out (models/families.h).
struct Model {
  std::string name;
  Family family = Family::gpt;
  std::int64_t layers = 0;        ///< transformer blocks
  std::int64_t hidden = 0;        ///< C
  std::int64_t heads = 0;         ///< H
  std::int64_t kv_heads = 0;      ///< G; equals heads unless grouped-query attention
  std::int64_t head_dim = 0;      ///< D; usually hidden / heads
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
  bool qkv_bias = false;        ///< q, k and v do though the others do not (Qwen2)
  bool tied_embeddings = true;  ///< the head uses the token table
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  double initial_stddev = 0.02;  ///< residual projections are scaled by 1/sqrt(2*layers) where norms come first (GPT-2)
  Gelu gelu = Gelu::tanh;
  /// Attention and MLP read the same residual: y = x + attention(norm(x)) + mlp(norm(x)) (Wang and Komatsuzaki 2021,
  /// GPT-J; GPT-NeoX, Falcon), both through one norm, or each through its own.
  bool parallel = false;
  bool shared_norm = false;
  bool output_norm = false;          ///< norms also behind attention and MLP, before the residual (Gemma 2)
  bool embedding_norm = false;       ///< behind the embedding, as BERT has it, though others are ahead (BLOOM)
  bool scaled_embedding = false;     ///< tokens' rows times sqrt(hidden) (Vaswani et al. 2017, section 3.4; Gemma)
  bool qk_norm = false;              ///< RMSNorm of each head of q and k ahead of the rotation (Qwen3)
  double rotary_share = 1;           ///< of a head's columns that turn: the first
  std::int64_t position_offset = 0;  ///< rows of the position table before the first position (OPT: 2)
  double attention_cap = 0;          ///< scores become cap tanh(score/cap) (Gemma 2); 0: as they are
  double logit_cap = 0;              ///< the same of the logits
  double query_scale = 0;            ///< scores are divided by its square root; 0: by the root of head_dim
  std::int64_t window = 0;           ///< a token sees so many, itself the last; 0: all before it
  std::int64_t window_period = 0;    ///< each so many-th layer sees all the same (Gemma 2: 2); 0: none
  /// Of a sequence's tokens so many are predicted: BERT's masked-language head (Devlin et al. 2019, section 3.1),
  /// computed at those rows alone. 0: the next token of each.
  double masked_fraction = 0;
  bool next_sentence = false;  ///< BERT's other head: whether the second segment follows the first
  Dropout dropout;
  Lora lora;                     ///< adapters that train, in place of all else
  Experts experts;               ///< in place of some layers' MLPs
  LatentAttention latent;        ///< in place of q, k and v made of the token; head_dim is then nope + rope
  bool attention_sinks = false;  ///< a learned logit of each head stands beside its scores (gpt-oss)
  /// family dlrm alone: what it has in place of a stack of blocks. The members above then say nothing.
  std::optional<Recommender> recommender;
  std::vector<std::string> sources;  ///< where each number comes from
  bool operator==(const Model&) const = default;
  [[nodiscard]] bool windowed(std::int64_t layer) const {
    return window > 0 && (window_period == 0 || (layer + 1) % window_period != 0);
  }
  /// Columns of a head that turn.
  [[nodiscard]] std::int64_t rotary_columns() const {
    return static_cast<std::int64_t>(rotary_share * static_cast<double>(head_dim) + 1e-9);
  }
};

}  // namespace orrery::models
