#pragma once
/// What entries of families with mixtures of experts share. Private to models/read/families_*.cpp.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "models/read/family_parts.h"

namespace orrery::models::family_parts {

inline constexpr double kMostCoefficient = 1e3;

/// The number of experts. `count` is the class's own name for it; transformers 5 takes the others as well
/// (attribute_map of its configurations).
inline void experts_count(ConfigKeys& k, Model& m, const char* count) {
  k.count({count, "num_local_experts", "num_experts", "n_routed_experts"}, m.experts.count, 1, kMostExperts);
}
/// That, and how many a token takes.
inline void experts_keys(ConfigKeys& k, Model& m, const char* count) {
  experts_count(k, m, count);
  k.count({"num_experts_per_tok", "experts_per_token"}, m.experts.chosen, 1, kMostExperts);
}

// The classes add the loss only if they also return the routers' logits.
inline void auxiliary_loss(ConfigKeys& k, Model& m, double coefficient) {
  bool added = m.experts.aux_coefficient > 0;
  k.flag({"output_router_logits"}, added, false);
  k.real({"router_aux_loss_coef"}, m.experts.aux_coefficient, 0, kMostCoefficient, coefficient);
  if (k.reads() && !added) m.experts.aux_coefficient = 0;
}

/// Random factors of what routers and experts read, in training alone, which a model here has not.
inline void jitter_left_out(ConfigKeys& k, const std::string& key = "router_jitter_noise") {
  double noise = 0;
  if (k.reads()) k.real({key.c_str()}, noise, 0, kMostCoefficient, 0);
  if (noise > 0) k.differs(fmt::format("training multiplies nothing before routers by random factors ({})", key));
}

/// For families where one key is the width of the experts and of dense MLPs, which do not exist.
inline void experts_as_wide_as_mlps(ConfigKeys& k, Model& m) {
  if (k.reads()) m.experts.hidden = m.ffn_hidden;
}

inline WeightNames with_experts(const char* router, const char* experts, WeightNames::Pairs parts) {
  WeightNames names = llama_names();
  names.parts.push_back({"mlp.router", router});
  names.experts = experts;
  names.expert_parts = std::move(parts);
  return names;
}
/// All experts of a layer in two tensors: gate and up together, and down.
inline const WeightNames::Pairs kStacked = {{"gate", "gate_up_proj"}, {"up", "gate_up_proj"}, {"proj", "down_proj"}};
inline void stack_experts(WeightNames& names, const Model& model) {
  names.stacked = model.experts.count;
}
/// Granite's: all experts of a layer by rows, beside an MLP that every token takes.
inline void add_granite_experts(WeightNames& names) {
  for (const auto& pair : WeightNames::Pairs{{"mlp.router", "block_sparse_moe.router.layer"},
                                             {"mlp.shared.gate", "shared_mlp.input_linear"},
                                             {"mlp.shared.up", "shared_mlp.input_linear"},
                                             {"mlp.shared.proj", "shared_mlp.output_linear"}})
    names.parts.push_back(pair);
  names.experts = "block_sparse_moe";
  names.expert_parts = {
      {"gate", "input_linear.weight"}, {"up", "input_linear.weight"}, {"proj", "output_linear.weight"}};
  names.stacked_by_rows = true;
}
inline const WeightNames::Pairs kProjections = {{"gate", "gate_proj"}, {"up", "up_proj"}, {"proj", "down_proj"}};

// -- DeepSeek-V3's routing --------------------------------------------------------------------------------------------

// DeepSeek-AI 2024, "DeepSeek-V3", sections 2.1.2 and 4.2: weights from sigmoids, groups chosen by their two best
// experts, and a bias that moves by 0.001 a step.
inline void as_deepseek_v3(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.experts.scores = Scores::sigmoid;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
  m.experts.bias_rate = 0.001;
}

inline void deepseek_groups(ConfigKeys& k, Model& m) {
  k.count({"n_group"}, m.experts.groups, 1, kMostExperts, 1);
  k.count({"topk_group"}, m.experts.groups_chosen, 1, kMostExperts, 1);
}

/// What a class has where its file is silent.
struct RoutingDefaults {
  double scale = 1;  ///< routed_scaling_factor
  bool normalised = true;
  std::int64_t shared = 1, dense = 0;  ///< shared experts, and first layers without experts
};

/// The experts' sizes, which layers have experts, and how their weights are scaled.
inline void routed_like_deepseek(ConfigKeys& k, Model& m, const RoutingDefaults& silent) {
  Experts& e = m.experts;
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"n_shared_experts"}, shared, 0, kMostExperts, silent.shared);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, silent.dense);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, silent.scale);
  k.flag({"norm_topk_prob"}, e.normalised, silent.normalised);
}

}  // namespace orrery::models::family_parts
