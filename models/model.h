#pragma once
/// Model: what is trained, as plain data. It knows neither a device nor a second.
/// Letters used for shapes everywhere: B sequences in a micro-batch, T tokens per sequence, C hidden width, H heads,
/// G key/value heads, D head width, F width of the MLP, V vocabulary, n = B*T tokens.
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::models {

enum class Family { gpt, bert, llama };
enum class Normalisation { layer_norm, rms_norm };
enum class Activation { gelu, swiglu, relu };
enum class Gelu { tanh, erf };  ///< GPT-2's tanh form, or x Phi(x) as it is (BERT)
enum class Positions { learned, rope };

/// Rates of dropout (Srivastava et al. 2014) while a model trains: the share of values that are set to zero, the others
/// being scaled up by 1/(1 - rate). Evaluation and sampling are without.
struct Dropout {
  double embedding = 0;  ///< of the sum of the embeddings (behind BERT's norm): embd_pdrop
  double attention = 0;  ///< of the attention's probabilities: attn_pdrop
  double residual = 0;   ///< of what attention and MLP add to the residual: resid_pdrop
  [[nodiscard]] bool any() const { return embedding > 0 || attention > 0 || residual > 0; }
  bool operator==(const Dropout&) const = default;
};

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
  bool tied_embeddings = true;  ///< the head uses the token table
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  double initial_stddev = 0.02;  ///< residual projections are scaled by 1/sqrt(2*layers) where norms come first (GPT-2)
  Gelu gelu = Gelu::tanh;
  /// Of a sequence's tokens so many are predicted: BERT's masked-language head (Devlin et al. 2019, section 3.1),
  /// computed at those rows alone. 0: the next token of each.
  double masked_fraction = 0;
  bool next_sentence = false;  ///< BERT's other head: whether the second segment follows the first
  Dropout dropout;
  std::vector<std::string> sources;  ///< where each number comes from
  bool operator==(const Model&) const = default;
};

}  // namespace orrery::models
