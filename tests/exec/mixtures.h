#pragma once
/// The mixtures and latent attentions that PyTorch has trained too: tests/golden/pytorch/generate_moe.py,
/// generate_gpt_oss.py and generate_latent.py.
#include <string>

#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {

inline std::string golden_mixture_file(const std::string& kind, const char* end) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/" + (kind == "gpt_oss" ? "" : "moe_") + kind + end;
}

/// A Llama's blocks at a golden model's size.
inline void make_golden_blocks(models::Model& m) {
  m.layers = 3;
  m.ffn_hidden = 48;
  m.normalisation = models::Normalisation::rms_norm;
  m.norm_epsilon = 1e-5;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = false;
  m.tied_embeddings = false;
}

/// "mixtral", "deepseek" or "gpt_oss".
inline Trial golden_mixture(const std::string& kind) {
  Trial trial = golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  make_golden_blocks(m);
  m.kv_heads = 2;
  m.experts = {.count = 8, .chosen = 2, .hidden = 24, .normalised = true};
  if (kind == "mixtral") {
    m.experts.aux_coefficient = 0.02;
    m.experts.z_coefficient = 0.01;
  } else if (kind == "deepseek") {
    m.experts.chosen = 3;
    m.experts.shared = 16;
    m.experts.first_dense = 1;
    m.experts.scores = models::Scores::sigmoid;
    m.experts.weight_scale = 2.5;
    m.experts.groups = 4;
    m.experts.groups_chosen = 2;
    m.experts.balance_bias = true;
  }
  if (kind == "gpt_oss") make_gpt_oss(m);
  trial.spec.stages.order = plan::Order::gpipe;
  trial.training.initial_weights = golden_mixture_file(kind, "_initial.safetensors");
  return trial;
}

/// "v3", with experts, "further", the same with the module that predicts a token further, or "lite", whose queries are
/// not compressed.
inline Trial golden_latent(const std::string& kind) {
  Trial trial = golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  const bool lite = kind == "lite";
  m.family = models::Family::deepseek_v3;
  make_golden_blocks(m);
  m.head_dim = 10;
  m.latent = {.q_rank = lite ? 0 : 20, .kv_rank = 12, .nope = 6, .rope = 4, .value = 8};
  if (!lite)
    m.experts = {.count = 8,
                 .chosen = 3,
                 .hidden = 24,
                 .shared = 16,
                 .first_dense = 1,
                 .scores = models::Scores::sigmoid,
                 .normalised = true,
                 .weight_scale = 2.5,
                 .groups = 4,
                 .groups_chosen = 2,
                 .balance_bias = true};
  m.further.modules = kind == "further" ? 1 : 0;
  trial.spec.stages.order = plan::Order::gpipe;
  trial.training.initial_weights =
      std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/latent_" + kind + "_initial.safetensors";
  return trial;
}

}  // namespace orrery::exec::testing
