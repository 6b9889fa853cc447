#pragma once
/// Mixtures of experts: which of a layer's MLPs a token takes depends on the data. Letters: E experts, k chosen for
/// each token, F an expert's own width.
#include <cstdint>
#include <vector>

#include "models/dtype.h"

namespace orrery::models {

/// How a router's logits become weights.
enum class Scores : std::uint8_t {
  softmax,         ///< over all experts, then the k largest (Shazeer et al. 2017; Switch, GShard, Qwen)
  softmax_chosen,  ///< the k largest logits, then a softmax over them alone (gpt-oss); Mixtral's normalised softmax is
                   ///< the same numbers
  sigmoid,         ///< of each logit by itself (DeepSeek-V3; Llama 4)
  /// Each choice by itself: a softmax over the logits near the largest one that is left, and while training an expert
  /// drawn from it, with a gradient through the draw (Liu et al. 2023, "Sparse Backpropagation for MoE Training"; 2024,
  /// "GRIN"). Predicted, not executed.
  sparse_mixer,
  sqrt_softplus,  ///< the root of softplus(logit), for the choice with a bias, as sigmoid (DeepSeek-V4); predicted
                  ///< alone
};

/// The format in which rows of tokens travel to experts and back.
enum class TokenCodec : std::uint8_t {
  none,  ///< as computed
  bf16,
  fp8,   ///< e4m3; every kTokenBlock values share a scale, a power of two (DeepSeek-V3, section 3.3.3)
  int8,  ///< each row with one scale: its largest magnitude / 127
};
inline constexpr std::int64_t kTokenBlock = 128;

/// Rows in fewer bits are bytes: scales (fp32) first, then codes.
[[nodiscard]] constexpr DType dtype_of(TokenCodec codec) {
  return codec == TokenCodec::bf16 ? DType::bf16 : DType::uint8;
}
[[nodiscard]] constexpr std::int64_t scales_of_row(TokenCodec codec, std::int64_t columns) {
  return codec == TokenCodec::fp8 ? (columns + kTokenBlock - 1) / kTokenBlock : codec == TokenCodec::int8 ? 1 : 0;
}
/// Elements of a row of `columns` values while it travels.
[[nodiscard]] constexpr std::int64_t elements_of_row(TokenCodec codec, std::int64_t columns) {
  return columns + size_of(DType::fp32) * scales_of_row(codec, columns);
}

/// A model's experts, which replace the MLP in some of its layers. count = 0: a dense model.
struct Experts {
  std::int64_t count = 0;        ///< E
  std::int64_t chosen = 1;       ///< k
  std::int64_t hidden = 0;       ///< F
  std::int64_t narrow = 0;       ///< width of a copy of the token on which experts work (Nemotron 3); 0: on itself
  std::int64_t shared = 0;       ///< total width of the experts that every token takes; 0: none
  bool shared_gate = false;      ///< their result is scaled by a sigmoid of a product with the token (Qwen2-MoE)
  std::int64_t first_dense = 0;  ///< number of first layers with a dense MLP of ffn_hidden (DeepSeek)
  std::int64_t period = 1;       ///< the last layer of every period has experts (Switch, Llama 4: 2)
  Scores scores = Scores::softmax;
  bool normalised = false;         ///< the chosen weights are divided by their sum
  double weight_scale = 1;         ///< and then multiplied by this (DeepSeek's routed_scaling_factor)
  bool scales_input = false;       ///< the weight multiplies an expert's input, not its output (Llama 4)
  std::int64_t groups = 1;         ///< groups of neighbouring experts,
  std::int64_t groups_chosen = 1;  ///< of which a token may use this many (DeepSeek's node limit)
  /// A group's score: the sum of its two best experts (DeepSeek-V3), or its best (DeepSeek-V2).
  bool groups_by_two = true;
  /// A value per expert is added to its score when experts are chosen, but not when they are weighted. It is a buffer
  /// that the loss does not train (Wang et al. 2024).
  bool balance_bias = false;
  double bias_rate = 0;      ///< after a step each expert's bias moves this far towards the mean load; 0: it stays
  bool router_bias = false;  ///< the router's product has a bias (gpt-oss)
  bool expert_bias = false;  ///< an expert's products have biases (gpt-oss)
  /// Every token takes the block's MLP, too: both read the residual, each between norms of its own (Gemma 4).
  bool beside = false;
  /// The router reads the residual behind a norm of its own, divided by the root of its width, and the chosen weights
  /// are multiplied by a trained number of each expert (Gemma 4).
  bool own_router_norm = false;
  std::int64_t hashed = 0;     ///< first layers whose tokens' ids choose experts, not their router (DeepSeek-V4)
  double limit = 0;            ///< gates of experts are at most this, values within it (DeepSeek-V4); 0: no limit
  double aux_coefficient = 0;  ///< of the load-balancing loss (Fedus et al. 2022, equation 4), over the global step
  double z_coefficient = 0;    ///< of the mean square of the router's log-sum-exp (Zoph et al. 2022, equation 5)
  /// An expert takes at most capacity_factor * k * T / E tokens of a sequence (rounded down, at least 1), first come
  /// first served; the others skip it. 0: no token is dropped.
  double capacity_factor = 0;
  bool operator==(const Experts&) const = default;
  [[nodiscard]] bool any() const { return count > 0; }
  /// What an expert reads and makes, in a model of width `model_hidden`.
  [[nodiscard]] std::int64_t columns(std::int64_t model_hidden) const { return narrow > 0 ? narrow : model_hidden; }
  [[nodiscard]] bool in_layer(std::int64_t layer) const {
    return any() && layer >= first_dense && (layer + 1) % period == 0;
  }
  /// Sets first_dense and period such that those layers have experts that `with` says, if any do; else false, and
  /// nothing changes.
  bool place(const std::vector<bool>& with);
  /// How many of the first `layers` layers have experts.
  [[nodiscard]] std::int64_t layers_of(std::int64_t layers) const;
};

}  // namespace orrery::models
