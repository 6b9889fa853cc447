// Mixtures of experts as models: from their public configurations and from orrery's own form, with the parameters that
// their papers and files have, all of them and those that a token meets; and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "models/layers/counts.h"
#include "models/layers/expand.h"
#include "models/read/hugging_face.h"
#include "models/read/read.h"

namespace orrery::models {
namespace experts_test {

Model model_of(const std::string& text, const std::string& file = "config.json") {
  const auto model = parse_model(text, file);
  EXPECT_TRUE(model.has_value()) << text << base::render(model.error(), false);
  return model.value_or(Model{});
}

std::string message_of(const std::string& text, const std::string& file = "model.yaml") {
  const auto model = parse_model(text, file);
  return model ? "(accepted)" : base::render(model.error(), false);
}

Model of_catalogue(const std::string& name) {
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/models/catalog/" + name + ".yaml";
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return model_of(text.str(), path);
}

struct Configuration {
  const char* name;    ///< in the catalogue; empty: not there
  std::int64_t count;  ///< of parameters that are trained
  double active;       ///< as published, in billions
  double rounding;     ///< of that figure
  const char* config;  ///< config.json without what concerns no shape
};

// Parameters are those of the files' own indices and of model cards; active ones of papers and cards.
const std::vector<Configuration>& configurations() {
  static const std::vector<Configuration> kAll = {
      {"mixtral-8x7b", 46'702'792'704, 12.9, 0.05,
       R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "attention_dropout": 0.0,
           "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
           "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
           "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
           "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
           "tie_word_embeddings": false, "vocab_size": 32000})"},
      {"mixtral-8x22b", 140'620'634'112, 39, 0.5,
       R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "attention_dropout": 0.0,
           "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 16384,
           "max_position_embeddings": 65536, "num_attention_heads": 48, "num_experts_per_tok": 2,
           "num_hidden_layers": 56, "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-05,
           "rope_theta": 1000000, "router_aux_loss_coef": 0.001, "sliding_window": null,
           "tie_word_embeddings": false, "vocab_size": 32000})"},
      {"qwen3-30b-a3b", 30'532'122'624, 3.3, 0.06,
       R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1,
           "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
           "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
           "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
           "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
           "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
           "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
           "use_sliding_window": false, "vocab_size": 151936})"},
      {"qwen3-235b-a22b", 235'093'634'560, 22, 0.5,
       R"({"model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
           "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
           "max_window_layers": 94, "mlp_only_layers": [], "moe_intermediate_size": 1536, "norm_topk_prob": true,
           "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 94,
           "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
           "tie_word_embeddings": false, "vocab_size": 151936})"},
      {"", 14'315'784'192, 2.7, 0.05,  // Qwen1.5-MoE-A2.7B
       R"({"model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
           "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
           "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
           "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
           "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632,
           "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"},
      {"", 57'408'658'944, 14, 0.5,  // Qwen2-57B-A14B
       R"({"model_type": "qwen2_moe", "hidden_size": 3584, "intermediate_size": 18944,
           "max_position_embeddings": 131072, "moe_intermediate_size": 2560, "norm_topk_prob": false,
           "num_attention_heads": 28, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28,
           "num_key_value_heads": 4, "rope_theta": 1000000.0, "shared_expert_intermediate_size": 20480,
           "tie_word_embeddings": false, "vocab_size": 151936})"},
      {"deepseek-v3", 671'026'404'352, 37, 0.6,
       R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
           "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
           "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
           "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
           "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
           "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
           "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
           "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000, "routed_scaling_factor": 2.5,
           "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4,
           "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})"},
      {"", 235'741'434'880, 21, 0.4,  // DeepSeek-V2
       R"({"model_type": "deepseek_v2", "attention_bias": false, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1,
           "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 12288, "kv_lora_rank": 512,
           "max_position_embeddings": 163840, "moe_intermediate_size": 1536, "moe_layer_freq": 1, "n_group": 8,
           "n_routed_experts": 160, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 128,
           "num_experts_per_tok": 6, "num_hidden_layers": 60, "num_key_value_heads": 128, "q_lora_rank": 1536,
           "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000,
           "routed_scaling_factor": 16.0, "scoring_func": "softmax", "tie_word_embeddings": false, "topk_group": 3,
           "topk_method": "group_limited_greedy", "v_head_dim": 128, "vocab_size": 102400})"},
      {"", 15'706'484'224, 2.4, 0.3,  // DeepSeek-V2-Lite: q is made of the token at once
       R"({"model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944,
           "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "n_group": 1,
           "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
           "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
           "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
           "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400})"},
      {"gpt-oss-120b", 116'829'156'672, 5.71, 0.005,  // the card's 5.13 are without the token table's 0.58
       R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
           "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
           "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072,
           "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36,
           "num_key_value_heads": 8, "num_local_experts": 128, "rms_norm_eps": 1e-05, "rope_theta": 150000,
           "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088})"},
      {"gpt-oss-20b", 20'914'757'184, 4.19, 0.005,  // gpt-oss-20b: 3.61 and the token table's 0.58
       R"({"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
           "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4,
           "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "sliding_window": 128,
           "vocab_size": 201088})"},
      {"kimi-k2", 1'026'408'209'408, 32.9, 0.05,  // the card's: 1 trillion, 32 billion active
       R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "attention_bias": false,
           "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
           "kv_lora_rank": 512, "max_position_embeddings": 131072, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
           "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1, "norm_topk_prob": true,
           "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 64,
           "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
           "rms_norm_eps": 1e-06, "rope_theta": 50000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid",
           "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840})"},
      {"glm-4.5", 352'797'814'784, 33.6, 0.05,  // the card's 32 are without table and head (1.55)
       R"({"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": true,
           "first_k_dense_replace": 3, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
           "intermediate_size": 12288, "max_position_embeddings": 131072, "moe_intermediate_size": 1536,
           "n_group": 1, "n_routed_experts": 160, "n_shared_experts": 1, "norm_topk_prob": true,
           "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 92, "num_key_value_heads": 8,
           "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
           "rope_theta": 1000000, "routed_scaling_factor": 2.5, "topk_group": 1, "use_qk_norm": true,
           "vocab_size": 151552})"},
      {"glm-4.5-air", 106'852'245'504, 13.4, 0.05,  // the card's 12 are without table and head (1.24)
       R"({"model_type": "glm4_moe", "attention_bias": true, "first_k_dense_replace": 1, "head_dim": 128,
           "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 131072,
           "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
           "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46,
           "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5,
           "rms_norm_eps": 1e-05, "rope_theta": 1000000, "routed_scaling_factor": 1.0, "topk_group": 1,
           "use_qk_norm": false, "vocab_size": 151552})"},
      {"", 16'375'728'128, 2.8, 0.05,  // DeepSeekMoE 16B
       R"({"architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "attention_bias": false,
           "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
           "intermediate_size": 10944, "max_position_embeddings": 4096, "moe_intermediate_size": 1408,
           "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
           "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 16,
           "rms_norm_eps": 1e-06, "rope_theta": 10000, "scoring_func": "softmax", "seq_aux": true,
           "tie_word_embeddings": false, "vocab_size": 102400})"},
      {"", 142'774'373'888, 14, 0.5,  // dots.llm1
       R"({"architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "attention_bias": false,
           "first_k_dense_replace": 1, "hidden_size": 4096, "intermediate_size": 10944,
           "max_position_embeddings": 32768, "max_window_layers": 62, "moe_intermediate_size": 1408,
           "n_routed_experts": 128, "n_shared_experts": 2, "norm_topk_prob": true, "num_attention_heads": 32,
           "num_experts_per_tok": 6, "num_hidden_layers": 62, "num_key_value_heads": 32, "rms_norm_eps": 1e-05,
           "rope_theta": 10000000, "routed_scaling_factor": 2.5, "sliding_window": null,
           "tie_word_embeddings": false, "vocab_size": 152064})"},
      {"", 21'825'436'160, 3, 0.5,  // ERNIE 4.5 21B-A3B
       R"({"architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_act": "silu",
           "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072,
           "moe_intermediate_size": 1536, "moe_k": 6, "moe_layer_interval": 1, "moe_layer_start_index": 1,
           "moe_num_experts": 64, "moe_num_shared_experts": 2, "num_attention_heads": 20, "num_hidden_layers": 28,
           "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
           "use_bias": false, "vocab_size": 103424})"},
      {"", 228'689'748'992, 11.03, 0.01,  // MiniMax-M2: its makers' 10 are without the token table's 0.61
       R"({"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "head_dim": 128,
           "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 1536, "max_position_embeddings": 196608,
           "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
           "num_local_experts": 256, "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06, "rope_theta": 5000000,
           "rotary_dim": 64, "scoring_func": "sigmoid", "shared_intermediate_size": 0, "tie_word_embeddings": false,
           "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})"},
      {"", 1'334'628'352, 0.4, 0.03,  // Granite 3.0 1B-A400M
       R"({"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "attention_bias": false,
           "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 1024,
           "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 4096,
           "num_attention_heads": 16, "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8,
           "num_local_experts": 32, "output_router_logits": false, "residual_multiplier": 0.22,
           "rms_norm_eps": 1e-06, "rope_theta": 10000, "router_aux_loss_coef": 0.001, "tie_word_embeddings": true,
           "vocab_size": 49155})"},
      {"", 3'298'793'472, 0.88, 0.01,  // Granite 3.0 3B-A800M
       R"({"model_type": "granitemoe", "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
           "hidden_size": 1536, "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 4096,
           "num_attention_heads": 24, "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8,
           "num_local_experts": 40, "residual_multiplier": 0.22, "tie_word_embeddings": true,
           "vocab_size": 49155})"},
      // One layer with a shared expert, by hand: attention 4 64 64, experts 4 of 3 64 24, shared 3 64 40, router 4 64,
      // norms 3 64, a table of 100 rows.
      {"", 4 * 64 * 64 + 4 * 3 * 64 * 24 + 3 * 64 * 40 + 4 * 64 + 3 * 64 + 100 * 64, 0, 0.001,
       R"({"architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared", "hidden_size": 64,
           "intermediate_size": 24, "max_position_embeddings": 64, "num_attention_heads": 4,
           "num_experts_per_tok": 2, "num_hidden_layers": 1, "num_local_experts": 4, "residual_multiplier": 0.5,
           "shared_intermediate_size": 40, "tie_word_embeddings": true, "vocab_size": 100})"},
      {"", 41'873'153'344, 6.6, 0.05,  // Phi-3.5-MoE
       R"({"architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "attention_bias": true,
           "hidden_act": "silu", "hidden_size": 4096, "input_jitter_noise": 0.01, "intermediate_size": 6400,
           "lm_head_bias": true, "max_position_embeddings": 131072, "num_attention_heads": 32,
           "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 16,
           "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
           "router_aux_loss_coef": 0.0, "router_jitter_noise": 0.01, "sliding_window": 131072,
           "tie_word_embeddings": false, "vocab_size": 32064})"},
      {"", 80'393'183'232, 12.75, 0.01,  // HunYuan-A13B
       R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "attention_bias": false,
           "attention_head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 3072,
           "max_position_embeddings": 32768, "mlp_bias": false, "moe_drop_tokens": false,
           "moe_intermediate_size": [3072, 3072, 3072], "moe_layer_num_skipped": 0, "moe_topk": [8, 8, 8],
           "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 64, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "num_shared_expert": [1, 1, 1], "rms_norm_eps": 1e-05,
           "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                            "mscale_all_dim": 1.0, "type": "dynamic"},
           "rope_theta": 10000.0, "tie_word_embeddings": true, "use_cla": false, "use_qk_norm": true,
           "vocab_size": 128167})"},
      {"", 16'801'974'272, 2.75, 0.01,  // Ling-lite
       R"({"architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "attention_dropout": 0.0,
           "embedding_dropout": 0.0, "first_k_dense_replace": 0, "head_dim": 128, "hidden_act": "silu",
           "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 16384,
           "moe_intermediate_size": 1408, "norm_head": true, "norm_topk_prob": true, "num_attention_heads": 16,
           "num_experts": 64, "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 4,
           "num_shared_experts": 2, "output_dropout": 0.0, "rms_norm_eps": 1e-05, "rope_theta": 600000,
           "tie_word_embeddings": false, "use_bias": false, "use_qkv_bias": false, "vocab_size": 126464})"},
      {"", 16'255'638'528, 1.43, 0.03,  // Ling-mini-2.0
       R"({"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe_v2", "attention_dropout": 0.0,
           "embedding_dropout": 0.0, "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu",
           "hidden_size": 2048, "intermediate_size": 5120, "max_position_embeddings": 32768,
           "moe_intermediate_size": 512, "moe_router_enable_expert_bias": true, "n_group": 8, "norm_topk_prob": true,
           "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 20,
           "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "num_shared_experts": 1, "output_dropout": 0.0,
           "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-06, "rope_theta": 600000, "routed_scaling_factor": 2.5,
           "score_function": "sigmoid", "tie_word_embeddings": false, "topk_group": 4, "use_bias": false,
           "use_qk_norm": true, "use_qkv_bias": false, "vocab_size": 157184})"},
      {"olmoe-1b-7b", 6'919'161'856, 1.3, 0.05,
       R"({"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "attention_bias": false, "clip_qkv": null,
           "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096,
           "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
           "num_hidden_layers": 16, "num_key_value_heads": 16, "output_router_logits": false, "rms_norm_eps": 1e-05,
           "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "vocab_size": 50304})"},
      {"", 131'596'523'520, 36, 0.5,  // DBRX
       R"({"architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "attn_config": {"clip_qkv": 8, "kv_n_heads": 8,
           "rope_theta": 500000}, "d_model": 6144, "emb_pdrop": 0.0, "ffn_config": {"ffn_hidden_size": 10752,
           "moe_jitter_eps": 0.01, "moe_loss_weight": 0.05, "moe_num_experts": 16, "moe_top_k": 4},
           "max_seq_len": 32768, "n_heads": 48, "n_layers": 40, "output_router_logits": false, "resid_pdrop": 0.0,
           "tie_word_embeddings": false, "vocab_size": 100352})"},
      {"", 107'769'861'120, 17, 0.5,  // Llama 4 Scout's language model; the card's 109 are with what reads images
       R"({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {
           "model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128, "hidden_act": "silu",
           "hidden_size": 5120, "interleave_moe_layer_step": 1, "intermediate_size": 8192,
           "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760, "num_attention_heads": 40,
           "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
           "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "router_aux_loss_coef": 0.001,
           "tie_word_embeddings": false, "vocab_size": 202048}})"},
      {"", 400'711'848'960, 17, 0.5,  // Llama 4 Maverick: each second layer has experts
       R"({"model_type": "llama4_text", "head_dim": 128, "hidden_size": 5120, "interleave_moe_layer_step": 2,
           "intermediate_size": 8192, "intermediate_size_mlp": 16384, "max_position_embeddings": 1048576,
           "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
           "num_local_experts": 128, "vocab_size": 202048})"},
  };
  return kAll;
}

Model nameless(Model m) {
  m.name.clear();
  m.sources.clear();
  return m;
}

TEST(MixturesOfExperts, HaveThePublishedParameterCounts) {
  for (const Configuration& one : configurations()) {
    const Model model = model_of(one.config);
    EXPECT_EQ(parameters(model), one.count) << one.config;
    EXPECT_NEAR(static_cast<double>(parameters_active(model)) * 1e-9, one.active, one.rounding) << one.config;
    if (*one.name == '\0') continue;
    EXPECT_EQ(parameters(of_catalogue(one.name)), one.count) << one.name;
    EXPECT_EQ(nameless(model), nameless(of_catalogue(one.name))) << write_model(model) << "against\n"
                                                                 << write_model(of_catalogue(one.name));
  }
}

// Patterson et al. 2021, Table 4, and Fedus et al. 2022, Table 9: in billions.
TEST(MixturesOfExperts, OfTwoThousandExpertsHaveThePublishedSizes) {
  EXPECT_NEAR(static_cast<double>(parameters(of_catalogue("gshard-600b"))), 619e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(parameters(of_catalogue("switch-c"))), 1571e9, 0.5e9);
}

TEST(MixturesOfExperts, ComeBackFromWhatIsWritten) {
  for (const Configuration& one : configurations()) {
    const Model model = model_of(one.config);
    EXPECT_EQ(model_of(write_model(model), "model.yaml"), model) << write_model(model);
    const auto text = write_hugging_face(model);
    ASSERT_TRUE(text) << one.config << base::render(text.error(), false);
    Model again = model_of(*text);
    // What is trained by is no part of what there is.
    again.experts.bias_rate = model.experts.bias_rate;
    EXPECT_EQ(nameless(again), nameless(model)) << *text;
  }
  for (const char* name : {"switch-c", "gshard-600b", "tiny-moe"}) {
    const Model model = of_catalogue(name);
    EXPECT_EQ(model_of(write_model(model), "model.yaml"), model) << write_model(model);
    EXPECT_FALSE(write_hugging_face(model)) << "GPT-2 has no experts";
  }
}

// As transformers' classes, which add the loss where they give the routers' logits out.
TEST(MixturesOfExperts, BalanceWhereTheirConfigurationsGiveLogitsOut) {
  std::string text = configurations().front().config;
  EXPECT_EQ(model_of(text).experts.aux_coefficient, 0);
  text.replace(text.find("\"output_router_logits\": false"), 29, "\"output_router_logits\": true");
  const Model m = model_of(text);
  EXPECT_EQ(m.experts.aux_coefficient, 0.02);
  const auto written = write_hugging_face(m);
  ASSERT_TRUE(written);
  EXPECT_EQ(model_of(*written).experts.aux_coefficient, 0.02);
}

TEST(MixturesOfExperts, AreWhatTheirConfigurationsSay) {
  const Experts v3 = of_catalogue("deepseek-v3").experts, v2 = model_of(configurations()[7].config).experts;
  EXPECT_TRUE(v3.scores == Scores::sigmoid && v3.normalised && v3.balance_bias && v3.groups_by_two);
  EXPECT_TRUE(v2.scores == Scores::softmax && !v2.normalised && !v2.balance_bias && !v2.groups_by_two);
  EXPECT_EQ(std::pair(v3.groups, v3.groups_chosen), (std::pair<std::int64_t, std::int64_t>(8, 4)));
  EXPECT_EQ(std::pair(v2.groups, v2.groups_chosen), (std::pair<std::int64_t, std::int64_t>(8, 3)));
  EXPECT_EQ(std::pair(v3.weight_scale, v2.weight_scale), std::pair(2.5, 16.0));
  EXPECT_EQ(std::pair(v3.shared, v2.shared), (std::pair<std::int64_t, std::int64_t>(2048, 3072)));
  const Experts oss = of_catalogue("gpt-oss-120b").experts;
  EXPECT_TRUE(oss.scores == Scores::softmax_chosen && oss.router_bias && oss.expert_bias);
  const Model maverick = model_of(configurations().back().config);
  EXPECT_TRUE(maverick.experts.scales_input && maverick.experts.scores == Scores::sigmoid);
  EXPECT_FALSE(maverick.experts.in_layer(0));
  EXPECT_TRUE(maverick.experts.in_layer(1));
  EXPECT_EQ(maverick.experts.layers_of(48), 24);
  EXPECT_EQ(v3.layers_of(61), 58);
}

// -- counts by hand ---------------------------------------------------------------------------------------------------

constexpr const char* kSmallLlama =
    "family: llama\nname: small\nlayers: 5\nhidden: 64\nheads: 4\nkv_heads: 2\nffn_hidden: 96\nvocab: 100\n"
    "max_sequence: 32\n";

TEST(MixturesOfExperts, AreCountedLayerByLayer) {
  const Model m = model_of(std::string(kSmallLlama) +
                               "experts: {count: 6, chosen: 2, hidden: 40, shared: 24, "
                               "shared_gate: true, first_dense: 1, period: 2, router_bias: true, "
                               "balance_bias: true}\n",
                           "m.yaml");
  const std::int64_t attention = 64 * (4 + 2 * 2) * 16 + 64 * 64, norms = 2 * 64, dense = 3 * 64 * 96;
  const std::int64_t around = 64 * 6 + 6 + 3 * 64 * 24 + 64, expert = 3 * 64 * 40;  // router, shared and its gate
  EXPECT_EQ(parameters_of_block(m, 0), attention + norms + dense);
  EXPECT_EQ(parameters_of_block(m, 1), attention + norms + around + 6 * expert)
      << "the bias of the choice is no weight";
  EXPECT_EQ(parameters_of_block(m, 2), parameters_of_block(m, 0));
  const std::int64_t ends = 2 * 100 * 64 + 64;
  EXPECT_EQ(parameters(m), 5 * (attention + norms) + 3 * dense + 2 * (around + 6 * expert) + ends);
  EXPECT_EQ(parameters_active(m), 5 * (attention + norms) + 3 * dense + 2 * (around + 2 * expert) + ends);
  // Two FLOPs of each weight that a token meets and multiplies, and the attention matrix.
  const std::int64_t multiplied = 5 * attention + 3 * dense + 2 * (around - 6 + 2 * expert) + 100 * 64;
  EXPECT_DOUBLE_EQ(flops_per_token_forward(m, 32), 2.0 * static_cast<double>(multiplied) + 5 * 4 * 32 * 64);
}

TEST(MixturesOfExperts, CountTheFlopsOfAllThatIsChosenAlsoWhereSomeIsDropped) {
  const std::string experts = std::string(kSmallLlama) + "experts: {count: 4, chosen: 2, hidden: 40, capacity_factor: ";
  EXPECT_DOUBLE_EQ(flops_per_token_forward(model_of(experts + "1}\n", "m.yaml"), 32),
                   flops_per_token_forward(model_of(experts + "0}\n", "m.yaml"), 32));
}

// What the class of DeepSeek-V2 has: q_a, its norm, q_b; kv_a with the shared columns, its norm, kv_b; o.
// A slot has room for the bound; of the fullest rank more of it is there, of whole slots all.
TEST(MixturesOfExperts, FillMoreOfTheirSlotsOnTheFullestRank) {
  const Model m = of_catalogue("mixtral-8x7b");
  const auto share = [&](double imbalance) {
    ExpandOptions options{.sequence = 4096, .expert = 8};
    options.imbalance = imbalance;
    for (const Part& part : expand(m, LayerKind::block, 0, options).forward)
      for (const Op& op : part.ops)
        if (op.kind == OpKind::grouped_matmul) return op.expected;
    return 0.0;
  };
  // 4,096 tokens of two choices over eight ranks are 1,024 rows a slot, which has room for twice as many and 64.
  EXPECT_DOUBLE_EQ(share(1), 1024.0 / (2 * 1024 + 64));
  EXPECT_DOUBLE_EQ(share(1.5), 1.5 * share(1));
  EXPECT_DOUBLE_EQ(share(100), 1);
}

TEST(LatentAttention, IsCountedByItsProducts) {
  const std::string begin =
      "family: llama\nname: small\nlayers: 2\nhidden: 64\nheads: 4\nffn_hidden: 96\nvocab: 100\n"
      "max_sequence: 32\n";
  const Model usual = model_of(begin, "m.yaml");
  const std::int64_t of_usual = 4 * 64 * 64;
  for (const std::int64_t q_rank : {24, 0}) {
    const Model m = model_of(begin + "latent_attention: {q_rank: " + std::to_string(q_rank) +
                                 ", kv_rank: 20, nope: 12, rope: 6, value: 10}\n",
                             "m.yaml");
    EXPECT_EQ(m.head_dim, 18);
    const std::int64_t q = q_rank > 0 ? 64 * 24 + 24 * 4 * 18 : 64 * 4 * 18;
    const std::int64_t products = q + 64 * (20 + 6) + 20 * 4 * (12 + 10) + 4 * 10 * 64;
    EXPECT_EQ(parameters(m) - parameters(usual), 2 * (products + q_rank + 20 - of_usual));
    const double scores = 32 * 4 * 2.0 * (18 + 10), scores_of_usual = 32 * 4 * 2.0 * (16 + 16);
    EXPECT_DOUBLE_EQ(flops_per_token_forward(m, 32) - flops_per_token_forward(usual, 32),
                     2 * (2.0 * static_cast<double>(products - of_usual) + scores - scores_of_usual));
  }
}

TEST(AttentionSinks, AreALogitOfEachHead) {
  const std::string text = kSmallLlama;
  EXPECT_EQ(parameters(model_of(text + "attention_sinks: true\n", "m.yaml")) - parameters(model_of(text, "m.yaml")),
            5 * 4);
}

// -- what is refused --------------------------------------------------------------------------------------------------

TEST(MixturesOfExperts, RefuseNumbersThatDoNotFitEachOtherWhereTheyStand) {
  struct Refused {
    const char* line;  ///< the tenth of the file
    int column;
    const char* message;
  };
  for (const Refused& one : std::vector<Refused>{
           {"experts: {count: 4, chosen: 5}", 29, "a token takes 5 of 4 experts"},
           {"experts: {count: 6, groups: 4}", 29, "6 experts do not divide into 4 groups"},
           {"experts: {count: 6, groups: 3, groups_chosen: 4}", 47, "a token takes experts of 4 of 3 groups"},
           {"experts: {count: 6, chosen: 3, groups: 3, groups_chosen: 1}", 58,
            "a token takes 3 experts, but 1 groups have 2"},
           {"experts: {count: 4, first_dense: 5}", 34, "the first 5 layers have no experts, but there are only 5"},
           {"experts: {count: 4, period: 6}", 29, "none of 5 layers has experts"},
           {"experts: {count: 4, shared_gate: true}", 34, "a gate for shared experts, but there are none"},
           {"experts: {count: 4, bias_rate: 0.001}", 32, "a rate for a bias that does not exist"},
           {"experts: {count: 64, capacity_factor: 1.5}", 39,
            "an expert takes 0.75 tokens of a sequence of 32: less than one"},
           {"experts: {count: 4, hidden: 8, pre_norm: 1}", 32, "unknown key `pre_norm`"},
           {"experts: {chosen: 2}", 10, "key `count` is missing"},
           {"experts: 8", 10, "`experts` is a map of sizes"},
           {"latent_attention: {kv_rank: 20, nope: 12, rope: 5, value: 10}", 19, "5 columns"},
           {"latent_attention: {nope: 12, rope: 6, value: 10}", 19, "key `kv_rank` is missing"},
           {"latent_attention: {kv_rank: 20, nope: 12, rope: 6, value: 19}", 19,
            "values of 19 columns are wider than their heads of"},
           {"latent_attention: {kv_rank: 20, nope: 12, rope: 6, value: 10}", 19, "a key and a value for each head"},
       }) {
    const std::string text = message_of(std::string(kSmallLlama) + one.line + "\n");
    EXPECT_NE(text.find(one.message), std::string::npos) << one.line << "\n" << text;
    EXPECT_NE(text.find("model.yaml:10:" + std::to_string(one.column) + "\n"), std::string::npos) << text;
  }
  EXPECT_NE(
      message_of(std::string(kSmallLlama) + "pre_norm: false\nexperts: {count: 4}\n").find("must normalise first"),
      std::string::npos);
  EXPECT_EQ(message_of(std::string(kSmallLlama) + "experts: {count: 64, capacity_factor: 2}\n"), "(accepted)");
}

TEST(MixturesOfExperts, AreNoFamilyOfTheirOwn) {
  for (const char* word : {"moe", "mixture_of_experts", "switch_transformer", "GShard"}) {
    const std::string text = message_of("family: " + std::string(word) + "\nlayers: 4\nnum_experts: 8\n");
    EXPECT_NE(text.find("error[E0106]"), std::string::npos) << text;
    EXPECT_NE(text.find("model.yaml:1:9"), std::string::npos) << text;
    EXPECT_NE(text.find("any model may have experts"), std::string::npos) << text;
    EXPECT_NE(text.find("experts: {count: 8, chosen: 2}"), std::string::npos) << text;
    EXPECT_EQ(text.find("num_experts"), std::string::npos) << "the rest is in other words: " << text;
  }
  std::string of_family = kSmallLlama;
  of_family.replace(of_family.find("llama"), 5, "mixtral");
  EXPECT_NE(message_of(of_family).find("key `experts` is missing"), std::string::npos);
}

std::string with_key(std::string config, const std::string& key, const std::string& value) {
  return config.insert(config.find('{') + 1, "\"" + key + "\": " + value + ", ");
}

// transformers 5 has one name for the number of experts, and each class's older one.
TEST(MixturesOfExperts, AreCountedUnderAnyOfTheirKeys) {
  constexpr const char* kNames[] = {"num_local_experts", "num_experts", "n_routed_experts"};
  for (const Configuration& one : configurations()) {
    const Model model = model_of(one.config);
    for (const char* own : kNames) {
      std::string text = one.config;
      const auto at = text.find("\"" + std::string(own) + "\"");
      if (at == std::string::npos) continue;
      for (const char* name : kNames) {
        std::string renamed = text;
        renamed.replace(at + 1, std::string(own).size(), name);
        EXPECT_EQ(model_of(renamed), model) << name << " in " << renamed;
      }
    }
  }
}

TEST(MixturesOfExperts, AreInTheLayersThatListsLeaveThem) {
  const std::string qwen = configurations()[2].config, deepseek = configurations()[6].config,
                    maverick = configurations().back().config;
  const auto expect = [](const std::string& text, std::int64_t first_dense, std::int64_t period) {
    const Model model = model_of(text);
    EXPECT_EQ(model.experts.first_dense, first_dense) << text;
    EXPECT_EQ(model.experts.period, period) << text;
    const auto written = write_hugging_face(model);
    ASSERT_TRUE(written) << base::render(written.error(), false);
    EXPECT_EQ(model_of(*written).experts, model.experts) << *written;
  };
  const auto listed = [&](const std::string& list) {
    std::string text = qwen;
    return text.replace(text.find("\"mlp_only_layers\": []"), 21, "\"mlp_only_layers\": [" + list + "]");
  };
  expect(listed(""), 0, 1);
  expect(listed("2, 0, 1"), 3, 1);
  std::string even = "0", odd = "1";
  for (int i = 2; i < 48; i += 2) even += ", " + std::to_string(i), odd += ", " + std::to_string(i + 1);
  expect(listed(even), 0, 2);
  expect(with_key(maverick, "moe_layers", "[" + odd + "]"), 0, 2);
  expect(with_key(maverick, "moe_layers", "[" + odd.substr(3) + "]"), 3, 2);
  EXPECT_NE(message_of(listed("0, 5"))
                .find("experts in layers 1, 2, 3, 4, 6, 7, 8, 9 ... of 48 (from 0) follow no "
                      "period"),
            std::string::npos)
      << message_of(listed("0, 5"));
  EXPECT_NE(message_of(listed(odd)).find("E0111"), std::string::npos) << "the first of every two";
  EXPECT_NE(message_of(listed(even + ", " + odd)).find("no layer would have experts"), std::string::npos);
  EXPECT_NE(message_of(listed("48")).find("E0105"), std::string::npos);
  EXPECT_NE(message_of(with_key(maverick, "moe_layers", "[1, 4]")).find("experts in layers 1, 4 of 48"),
            std::string::npos);
  std::string every = deepseek;
  every.replace(every.find("\"moe_layer_freq\": 1"), 19, "\"moe_layer_freq\": 2");
  EXPECT_NE(message_of(every).find("experts in layers 4, 6, 8"), std::string::npos) << message_of(every);
}

TEST(MixturesOfExperts, RefuseConfigurationsThatAModelCannotSay) {
  const auto config = [](const std::string& type, const std::string& more) {
    return R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 99, "num_experts": 8,
               "num_local_experts": 8, "num_experts_per_tok": 2, "n_routed_experts": 8, "kv_lora_rank": 16,
               "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "moe_intermediate_size": 32,
               "shared_expert_intermediate_size": 64, "intermediate_size": 128, "max_position_embeddings": 64,
               "model_type": ")" +
           type + "\"" + more + "}";
  };
  for (const char* type : {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4_text",
                           "kimi_k2", "glm4_moe", "deepseek", "dots1", "ernie4_5_moe"})
    EXPECT_EQ(message_of(config(type, "")), "(accepted)") << type;
  for (const auto& [type, more] :
       std::vector<std::pair<const char*, const char*>>{{"mixtral", R"("hidden_act": "relu")"},
                                                        {"qwen3_moe", R"("mlp_only_layers": [1])"},
                                                        {"deepseek_v3", R"("moe_layer_freq": 2)"},
                                                        {"deepseek_v3", R"("topk_method": "random")"},
                                                        {"deepseek_v2", R"("scoring_func": "tanh")"},
                                                        {"gpt_oss", R"("swiglu_limit": 5.0)"},
                                                        {"gpt_oss", R"("attention_bias": false)"}})
    EXPECT_NE(message_of(config(type, std::string(", ") + more)).find("E0111"), std::string::npos) << type << more;
  EXPECT_NE(message_of(config("mixtral", ", \"num_experts_per_tok\": 9")).find("E0107"), std::string::npos);
  std::string many = config("mixtral", "");
  many.replace(many.find("\"num_experts_per_tok\": 2"), 24, "\"num_experts_per_tok\": 9");
  EXPECT_NE(message_of(many).find("a token takes 9 of 8 experts"), std::string::npos) << message_of(many);
  const std::string two_stacks = message_of(R"({"model_type": "switch_transformers", "num_layers": 12})");
  EXPECT_NE(two_stacks.find("E0110"), std::string::npos) << two_stacks;
  EXPECT_NE(two_stacks.find("models/catalog/switch-c.yaml"), std::string::npos) << two_stacks;
}

}  // namespace experts_test
}  // namespace orrery::models
