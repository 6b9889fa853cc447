// Patterns of layers in config.json: as letters, as words, as numbers of layers; what they count; and those that no
// model here has.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/counts.h"
#include "models/read/hugging_face.h"
#include "models/read/original.h"
#include "models/read/read.h"

namespace orrery::models {
namespace hybrid_families_test {

Model read(const std::string& config) {
  const auto model = parse_model(config, "config.json");
  EXPECT_TRUE(model) << base::render(model.error(), false);
  return model ? *model : Model{};
}

/// A published configuration, its number of parameters, and its name in the catalogue if it has one.
struct Published {
  const char* name;
  std::int64_t count;
  std::string config;
};
/// Four of forty layers attend.
std::string granite_4(const std::string& sizes) {
  std::string kinds;
  for (int i = 0; i < 40; ++i) kinds += std::string(i > 0 ? ", " : "") + (i % 10 == 5 ? "\"attention\"" : "\"mamba\"");
  return R"({"model_type": "granitemoehybrid", "embedding_multiplier": 12, "logits_scaling": 16, "mamba_d_head": 64,
             "mamba_d_state": 128, "mamba_n_groups": 1, "max_position_embeddings": 131072, "num_hidden_layers": 40,
             "position_embedding_type": "nope", "residual_multiplier": 0.22, "tie_word_embeddings": true,
             "vocab_size": 100352, )" +
         sizes + ", \"layer_types\": [" + kinds + "]}";
}
/// One of eight layers attends.
std::string minimax_01() {
  std::string kinds;
  for (int i = 0; i < 80; ++i)
    kinds += std::string(i > 0 ? ", " : "") + (i % 8 == 7 ? "\"full_attention\"" : "\"linear_attention\"");
  return R"({"model_type": "minimax_text_01", "architectures": ["MiniMaxText01ForCausalLM"], "block_size": 256,
             "full_attn_alpha_factor": 3.5565588200778455, "full_attn_beta_factor": 1.0, "head_dim": 128,
             "hidden_act": "silu", "hidden_size": 6144, "intermediate_size": 9216,
             "linear_attn_alpha_factor": 3.5565588200778455, "linear_attn_beta_factor": 1.0,
             "max_position_embeddings": 10240000, "mlp_alpha_factor": 3.5565588200778455, "mlp_beta_factor": 1.0,
             "num_attention_heads": 64, "num_experts_per_tok": 2, "num_hidden_layers": 80, "num_key_value_heads": 8,
             "num_local_experts": 32, "postnorm": true, "rms_norm_eps": 1e-05, "rope_theta": 10000000,
             "rotary_dim": 64, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": null,
             "tie_word_embeddings": false, "vocab_size": 200064, "layer_types": [)" +
         kinds + "]}";
}
const std::vector<Published>& published() {
  static const std::vector<Published> kAll = {
      {"nemotron-h-8b", 8'100'852'736,
       R"({"model_type": "nemotron_h", "attention_head_dim": 128, "conv_kernel": 4, "hidden_size": 4096,
           "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
           "intermediate_size": 21504, "mamba_head_dim": 64, "mamba_num_heads": 128, "max_position_embeddings": 8192,
           "mlp_hidden_act": "relu2", "n_groups": 8, "num_attention_heads": 32, "num_hidden_layers": 52,
           "num_key_value_heads": 8, "ssm_state_size": 128, "vocab_size": 131072})"},
      {"nemotron-h-56b", 56'324'350'464,
       R"({"model_type": "nemotron_h", "attention_head_dim": 128, "chunk_size": 128, "hidden_size": 8192,
           "hybrid_override_pattern": ")"
       "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M"
       "-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\","
       R"("intermediate_size": 32768, "mamba_head_dim": 64, "mamba_num_heads": 256, "mamba_proj_bias": false,
           "max_position_embeddings": 8192, "n_groups": 8, "num_attention_heads": 64, "num_hidden_layers": 118,
           "num_key_value_heads": 8, "ssm_state_size": 256, "use_bias": false, "vocab_size": 131072})"},
      {"", 31'577'937'344,  // Nemotron 3 Nano 30B-A3B
       R"({"model_type": "nemotron_h", "head_dim": 128, "hidden_size": 2688,
           "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
           "intermediate_size": 1856, "mamba_head_dim": 64, "mamba_num_heads": 64, "max_position_embeddings": 262144,
           "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_groups": 8,
           "n_routed_experts": 128, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 6,
           "num_hidden_layers": 52, "num_key_value_heads": 2, "routed_scaling_factor": 2.5, "ssm_state_size": 128,
           "vocab_size": 131072})"},
      // Nemotron 3 Super 120B-A12B. By hand: experts of 2 x 1024 x 2688, 512 a layer, a router of 512 x 4096, both
      // products of 4096 x 1024 and the shared expert's 2 x 4096 x 5376, in 40 of 88 layers.
      {"nemotron-3-super-120b-a12b", 120'668'687'360,
       R"({"model_type": "nemotron_h", "head_dim": 128, "hidden_size": 4096,
           "hybrid_override_pattern": ")"
       "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME\","
       R"("intermediate_size": 2688, "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_num_heads": 128,
           "max_position_embeddings": 262144, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
           "moe_shared_expert_intermediate_size": 5376, "n_group": 1, "n_groups": 8, "n_routed_experts": 512,
           "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 22, "num_hidden_layers": 88,
           "num_key_value_heads": 2, "routed_scaling_factor": 5.0, "ssm_state_size": 128, "topk_group": 1,
           "vocab_size": 131072})"},
      {"", 7'285'403'648,  // Codestral Mamba 7B
       R"({"model_type": "mamba2", "hidden_size": 4096, "num_heads": 128, "head_dim": 64, "n_groups": 8,
           "num_hidden_layers": 64, "state_size": 128, "tie_word_embeddings": false, "vocab_size": 32768})"},
      {"", 2'702'599'680,  // Mamba-2 2.7B
       R"({"model_type": "mamba2", "hidden_size": 2560, "num_heads": 80, "head_dim": 64, "n_groups": 1,
           "num_hidden_layers": 64, "state_size": 128, "tie_word_embeddings": true, "vocab_size": 50288})"},
      {"", 9'780'235'392,  // Bamba 9B
       R"({"model_type": "bamba", "attn_layer_indices": [9, 18, 27], "hidden_size": 4096, "intermediate_size": 14336,
           "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 128,
           "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 8, "vocab_size": 128256})"},
      {"", 6'939'037'248, granite_4(R"("hidden_size": 1536, "intermediate_size": 512, "mamba_n_heads": 48,
           "num_attention_heads": 12, "num_experts_per_tok": 6, "num_key_value_heads": 4, "num_local_experts": 64,
           "shared_intermediate_size": 1024)")},  // Granite 4.0 H Tiny
      {"", 32'207'337'984, granite_4(R"("hidden_size": 4096, "intermediate_size": 768, "mamba_n_heads": 128,
           "num_attention_heads": 32, "num_experts_per_tok": 10, "num_key_value_heads": 8, "num_local_experts": 72,
           "shared_intermediate_size": 1536)")},  // Granite 4.0 H Small
      // By hand. A convolution: 2048 x 3 x 2048, 2048 x 3 taps, 2048 x 2048: 16,783,360. Attention: 2 x 2048 x 2048, 2
      // x 2048 x 512 and 2 x 64: 10,485,888. MLPs of 12,288 x 2/3 = 8,192: 3 x 2048 x 8192. Ten of the first, six of
      // the second, 16 MLPs with two norms, the tied table and the last norm: 1.17 billion.
      {"lfm2-1.2b", 10LL * 16'783'360 + 6LL * 10'485'888 + 16LL * (50'331'648 + 2 * 2048) + 65'536LL * 2048 + 2048,
       R"({"architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true, "block_dim": 2048,
           "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "block_norm_eps": 1e-05,
           "block_use_swiglu": true, "conv_L_cache": 3, "conv_bias": false, "conv_dim": 2048,
           "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048, "initializer_range": 0.02,
           "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-05, "num_attention_heads": 32,
           "num_hidden_layers": 16, "num_key_value_heads": 8, "rope_theta": 1000000.0, "vocab_size": 65536})"},
      // By hand: 18 convolutions, six layers of attention, two MLPs of 3 x 2048 x 7168, 22 layers of 32 experts of 3 x
      // 2048 x 1792 with their router: 8.3 billion.
      {"lfm2-8b-a1b",
       18LL * 16'783'360 + 6LL * 10'485'888 + 2LL * 3 * 2048 * 7168 + 22LL * (32 * (3LL * 2048 * 1792 + 2048)) +
           24LL * 2 * 2048 + 65'536LL * 2048 + 2048,
       R"({"architectures": ["Lfm2MoeForCausalLM"], "conv_L_cache": 3, "conv_bias": false, "hidden_size": 2048,
           "initializer_range": 0.02, "intermediate_size": 7168, "layer_types": ["conv", "conv", "full_attention",
           "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "conv",
           "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv",
           "conv"], "max_position_embeddings": 128000, "model_type": "lfm2_moe", "moe_intermediate_size": 1792,
           "norm_eps": 1e-05, "norm_topk_prob": true, "num_attention_heads": 32, "num_dense_layers": 2,
           "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
           "rope_theta": 1000000.0, "routed_scaling_factor": 1.0, "use_expert_bias": true, "vocab_size": 65536})"},
      // Falcon-H1 0.5B. By hand: a state space of 1024 x (2 x 1536 + 2 x 128 + 24), 1792 x 5 of a convolution, 3 x 24,
      // 1536 x 1024; attention of 2 x 1024 x 512 and 2 x 1024 x 128; an MLP of 3 x 1024 x 2048; two norms.
      {"falcon-h1-0.5b",
       36LL * (1024 * 3352 + 1792 * 5 + 3 * 24 + 1536 * 1024 + 2 * 1024 * 640 + 3 * 1024 * 2048 + 2 * 1024) +
           2LL * 32'784 * 1024 + 1024,
       R"({"architectures": ["FalconH1ForCausalLM"], "attention_bias": false, "attention_in_multiplier": 1.0,
           "attention_out_multiplier": 0.9375, "attn_layer_indices": null, "embedding_multiplier": 5.656854249492381,
           "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
           "intermediate_size": 2048, "key_multiplier": 0.39062499999999994, "lm_head_multiplier": 0.0390625,
           "mamba_chunk_size": 128, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
           "mamba_d_ssm": 1536, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 24,
           "mamba_norm_before_gate": false, "mamba_proj_bias": false, "mamba_rms_norm": false, "mamba_use_mlp": true,
           "max_position_embeddings": 16384, "mlp_bias": false, "mlp_multipliers": [0.8838834764831844, 0.5859375],
           "model_type": "falcon_h1", "num_attention_heads": 8, "num_hidden_layers": 36, "num_key_value_heads": 2,
           "projectors_bias": false, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 100000000000.0,
           "ssm_in_multiplier": 1.25, "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5,
           0.3535533905932738], "ssm_out_multiplier": 0.23570226039551587, "tie_word_embeddings": false,
           "vocab_size": 32784})"},
      // By hand. A selective state space of 8192 columns: 4096 x 2 x 8192, 8192 x (4 + 1), 8192 x (256 + 32), 256 x
      // 8192 and 8192, 8192 x 16, 8192, 8192 x 4096, 256 + 32; attention: 4096 x (2 x 4096 + 2 x 1024); 16 MLPs of
      // 14336, and 16 layers of 16 experts with a router; 51.6 B, as its card says.
      {"jamba-v0.1",
       28LL * (3LL * 4096 * 8192 + 8192LL * (5 + 288 + 256 + 1 + 16 + 1) + 288) + 4LL * 4096 * (2 * 4096 + 2 * 1024) +
           (16LL + 16 * 16) * 3 * 4096 * 14'336 + 16LL * 16 * 4096 + 32LL * 2 * 4096 + 2LL * 65'536 * 4096 + 4096,
       R"({"model_type": "jamba", "architectures": ["JambaForCausalLM"], "attention_dropout": 0.0,
           "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
           "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
           "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2,
           "mamba_proj_bias": false, "max_position_embeddings": 262144, "num_attention_heads": 32, "num_experts": 16,
           "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "output_router_logits": false,
           "rms_norm_eps": 1e-06, "router_aux_loss_coef": 0.001, "sliding_window": null,
           "tie_word_embeddings": false, "vocab_size": 65536})"},
      // By hand. A selective state space of 5120 columns without norms within: 2560 x 2 x 5120, 5120 x (4 + 1), 5120 x
      // (160 + 32), 160 x 5120 and 5120, 5120 x 16, 5120, 5120 x 2560; a norm of each layer, the tied table, a norm.
      {"mamba-2.8b", 64LL * (3LL * 2560 * 5120 + 5120LL * (5 + 192 + 160 + 1 + 16 + 1) + 2560) + 50'280LL * 2560 + 2560,
       R"({"architectures": ["MambaForCausalLM"], "conv_kernel": 4, "d_inner": 5120, "d_model": 2560, "expand": 2,
           "fused_add_norm": true, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.1,
           "intermediate_size": 5120, "layer_norm_epsilon": 1e-05, "model_type": "mamba", "n_layer": 64,
           "num_hidden_layers": 64, "rms_norm": true, "residual_in_fp32": true, "state_size": 16, "ssm_cfg": {},
           "time_step_rank": 160, "use_bias": false, "use_conv_bias": true, "vocab_size": 50280})"},
      // The same with 8192 of 4096 columns, which is not what `expand` says; norms within have no weights; 7.27 B, as
      // its card says.
      {"falcon-mamba-7b",
       64LL * (3LL * 4096 * 8192 + 8192LL * (5 + 288 + 256 + 1 + 16 + 1) + 4096) + 2LL * 65'024 * 4096 + 4096,
       R"({"architectures": ["FalconMambaForCausalLM"], "conv_kernel": 4, "expand": 16, "hidden_act": "silu",
           "hidden_size": 4096, "initializer_range": 0.1, "intermediate_size": 8192, "layer_norm_epsilon": 1e-05,
           "mixer_rms_eps": 1e-06, "model_type": "falcon_mamba", "num_hidden_layers": 64, "residual_in_fp32": true,
           "state_size": 16, "tie_word_embeddings": false, "time_step_rank": 256, "use_bias": false,
           "use_conv_bias": true, "vocab_size": 65024})"},
      // By hand. Lightning attention: 6144 x 4 x 8192, 8192 and 8192 x 6144; attention: 6144 x (8192 + 2 x 1024) and
      // 8192 x 6144; experts: 32 x 6144 and 32 x 3 x 6144 x 9216; two norms of a layer; 456 B, as its card says.
      {"minimax-text-01",
       70LL * (5LL * 6144 * 8192 + 8192) + 10LL * 6144 * (2 * 8192 + 2 * 1024) +
           80LL * (32LL * 6144 + 32LL * 3 * 6144 * 9216 + 2 * 6144) + 2LL * 200'064 * 6144 + 6144,
       minimax_01()},
      // By hand. A gated delta network: 2048 x (2 x 2048 + 2 x 4096) for q, k, v and z, 2048 x 64 for a and b, 8192 x 4
      // taps, 2 x 32 and 128, and 4096 x 2048: 33,718,464. Attention: 2048 x 8192 for q and its gate, 2 x 2048 x 512,
      // 2 x 256 and 4096 x 2048: 27,263,488. Experts: 512 x 2048, 513 x 3 x 2048 x 512 and 2048: 1,614,809,088. 36 of
      // the first, 12 of the second, 48 of the third with two norms, both vocabularies and the last norm.
      {"qwen3-next-80b-a3b",
       36LL * 33'718'464 + 12LL * 27'263'488 + 48LL * (1'614'809'088 + 2 * 2048) + 2LL * 151'936 * 2048 + 2048,
       R"({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "attention_bias": false,
           "attention_dropout": 0.0, "decoder_sparse_step": 1, "full_attention_interval": 4, "head_dim": 256,
           "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
           "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
           "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
           "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
           "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
           "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
           "rope_theta": 10000000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
           "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"},
  };
  return kAll;
}

Model essential(Model m) {
  m.name.clear();
  m.sources.clear();
  return m;
}

TEST(HybridFamilies, HaveThePublishedParameterCounts) {
  for (const Published& one : published()) {
    const Model model = read(one.config);
    EXPECT_EQ(parameters(model), one.count) << one.config;
    if (*one.name == '\0') continue;
    std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/" + one.name + ".yaml");
    std::stringstream text;
    text << in.rdbuf();
    const auto listed = parse_model(text.str(), "model.yaml");
    ASSERT_TRUE(listed) << base::render(listed.error(), false);
    EXPECT_EQ(parameters(*listed), one.count) << one.name;
    EXPECT_EQ(essential(model), essential(*listed)) << write_model(model) << "against\n" << write_model(*listed);
  }
}

TEST(HybridFamilies, AreReadWithoutAWarning) {
  for (const Published& one : published()) {
    base::Diagnostics warnings;
    EXPECT_TRUE(parse_model(one.config, "config.json", &warnings));
    EXPECT_TRUE(warnings.empty()) << one.config << base::render(warnings, false);
  }
}

// Nemotron 3 Nano 30B-A3B: 6 of 128 experts and the shared one.
TEST(HybridFamilies, CountThePassingTokensParameters) {
  EXPECT_EQ(parameters_active(read(published()[2].config)), 3'580'073'408);
  // Nemotron 3 Super 120B-A12B: 22 of 512 experts and the shared one. Its 12 are without the token table's 0.54.
  EXPECT_EQ(parameters_active(read(published()[3].config)), 12'770'216'960);
  // Qwen3-Next 80B-A3B: 10 of 512 experts and the shared one.
  const Published& qwen = published().back();
  EXPECT_EQ(qwen.count, 79'674'391'296);
  EXPECT_EQ(parameters_active(read(qwen.config)), qwen.count - 48LL * 502 * 3 * 2048 * 512);
}

TEST(HybridFamilies, JambasLayersAttendAndHaveExpertsByPeriodsOfTheirOwn) {
  const auto config = [](const std::string& more) {
    return R"({"model_type": "jamba", "hidden_size": 64, "intermediate_size": 32, "max_position_embeddings": 64,
               "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2, "vocab_size": 96, )" +
           more + "}";
  };
  const auto words = [](const Model& model) {
    std::string all;
    for (std::int64_t i = 0; i < model.layers; ++i) all += word_of(model.parts(i)) + " ";
    return all;
  };
  const std::string both = R"("attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2,
                              "expert_layer_offset": 1)";
  const Model mixed = read(config(both));
  EXPECT_EQ(words(mixed), "selective+mlp selective+experts attention+mlp selective+experts ");
  EXPECT_EQ(mixed.ssm.rank, 4) << "of 64 columns a sixteenth";
  EXPECT_EQ(mixed.ssm.inner(), 128);
  EXPECT_EQ(mixed.experts.count, 16);
  const Model dense = read(config(both + R"(, "num_experts": 1, "mamba_dt_rank": 7)"));
  EXPECT_EQ(words(dense), "selective+mlp selective+mlp attention+mlp selective+mlp ");
  EXPECT_EQ(dense.ssm.rank, 7);
  for (const Model& model : {mixed, dense}) {
    const auto again = parse_model(write_model(model), "model.yaml");
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(essential(*again), essential(model));
    const auto written = write_hugging_face(model);
    ASSERT_TRUE(written) << base::render(written.error(), false);
    EXPECT_EQ(essential(read(*written)), essential(model)) << *written;
  }
  EXPECT_FALSE(parse_model(config(R"("attn_layer_period": 2, "attn_layer_offset": 2)"), "config.json"));
}

TEST(HybridFamilies, MiniMax01sFirstFilesAreReadAsItsClass) {
  const std::string both = R"("hidden_size": 64, "intermediate_size": 32, "max_position_embeddings": 64,
      "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4, "num_key_value_heads": 2,
      "num_local_experts": 4, "rotary_dim": 8, "vocab_size": 96, )";
  const Model first = read(R"({"model_type": "minimax_m1", "postnorm": true, "attn_type_list": [0, 1, 0, 1],
      "layernorm_full_attention_alpha": 1.5, "layernorm_full_attention_beta": 0.5,
      "layernorm_linear_attention_alpha": 1.25, "layernorm_mlp_alpha": 1.75, "layernorm_mlp_beta": 0.75, )" +
                           both + R"("shared_intermediate_size": 0})");
  const Model later = read(R"({"model_type": "minimax", "layer_types": ["linear_attention", "full_attention",
      "linear_attention", "full_attention"], "full_attn_alpha_factor": 1.5, "full_attn_beta_factor": 0.5,
      "linear_attn_alpha_factor": 1.25, "mlp_alpha_factor": 1.75, "mlp_beta_factor": 0.75, )" +
                           both + R"("block_size": 256})");
  EXPECT_EQ(essential(first), essential(later)) << write_model(first) << "against\n" << write_model(later);
  EXPECT_EQ(first.skip_scales, (std::array{1.5, 1.25, 1.75}));
  EXPECT_EQ(first.value_scale, 0.5);
  EXPECT_EQ(first.experts.weight_scale, 0.75);
  EXPECT_EQ(word_of(first.parts(0)) + " " + word_of(first.parts(1)), "lightning+experts attention+experts");
  EXPECT_EQ(word_of(read(R"({"model_type": "minimax", )" + both + R"("block_size": 64})").parts(0)),
            "attention+experts")
      << "the class attends in every second layer, from the first on";
  const auto again = parse_model(write_model(first), "model.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(essential(*again), essential(first));
  EXPECT_TRUE(differences(first).empty());
  EXPECT_EQ(differences(later).size(), 1U) << "this class has no rotary_dim";
  const auto refused = write_hugging_face(first);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().front().code, "E0604");
  EXPECT_NE(refused.error().front().message.find("turns all columns"), std::string::npos);
  Model whole = first;
  whole.rotary_share = 1;
  // Nothing of lightning attention has these.
  whole.ssm.conv_bias = !whole.ssm.conv_bias;
  const auto written = write_hugging_face(whole);
  ASSERT_TRUE(written) << base::render(written.error(), false);
  Model same = read(*written);
  EXPECT_TRUE(differences(same).empty());
  same.ssm.conv_bias = whole.ssm.conv_bias;
  EXPECT_EQ(essential(same), essential(whole)) << *written;
  for (const char* residual : {R"("postnorm": false, )", ""})
    EXPECT_FALSE(
        parse_model(R"({"model_type": "minimax_m1", )" + (residual + both) + R"("block_size": 64})", "config.json"))
        << residual << ": another residual";
}

TEST(HybridFamilies, Lfm2sConvolutionsAreWhereAttentionIsNot) {
  const auto config = [](const std::string& more) {
    return R"({"model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
               "num_key_value_heads": 2, "vocab_size": 99, )" +
           more + "}";
  };
  const auto convolves = [](const Model& m) {
    std::string all;
    for (std::int64_t i = 0; i < m.layers; ++i) all += m.parts(i).mixer == Mixer::conv ? 'c' : 'a';
    return all;
  };
  const Model listed = read(config(R"("intermediate_size": 300, "full_attn_idxs": [1, 2])"));
  EXPECT_EQ(convolves(listed), "caac");
  EXPECT_EQ(listed.ffn_hidden, 256) << "200, rounded up";
  const Model typed = read(config(R"("intermediate_size": 300, "block_ffn_dim_multiplier": null,
      "layer_types": ["conv", "conv", "conv", "full_attention"])"));
  EXPECT_EQ(convolves(typed), "ccca");
  EXPECT_EQ(typed.ffn_hidden, 200);
  EXPECT_EQ(convolves(read(config(R"("block_ff_dim": 300, "intermediate_size": 900)"))), "aaaa");
  EXPECT_EQ(read(config(R"("block_ff_dim": 300, "intermediate_size": 900)")).ffn_hidden, 256);
  EXPECT_EQ(read(config(R"("intermediate_size": 300, "theta": 500, "rope_theta": 9000)")).rope_theta, 500);
  EXPECT_EQ(read(config(R"("intermediate_size": 300, "rope_parameters": {"full_attention": {"rope_theta": 700}})"))
                .rope_theta,
            700);
  EXPECT_FALSE(
      read(config(R"("intermediate_size": 300, "tie_embedding": false, "tie_word_embeddings": true)")).tied_embeddings);
  for (const char* where : {R"("full_attn_idxs": null)",
                            R"("layer_types": ["full_attention", "full_attention", "full_attention",
                                               "full_attention"])"}) {
    const Model whole = read(R"({"model_type": "lfm2_moe", "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99, "num_experts": 4,
        "num_experts_per_tok": 2, )" +
                             std::string(where) + "}");
    EXPECT_EQ(std::pair(convolves(whole), whole.conv_taps), (std::pair<std::string, std::int64_t>("aaaa", 0)));
    const auto text = write_hugging_face(whole);
    ASSERT_TRUE(text);
    EXPECT_EQ(read(*text).conv_taps, 0) << *text;
  }
  for (const char* more :
       {R"("intermediate_size": 1)", R"("intermediate_size": 1000000, "block_ffn_dim_multiplier": 2)",
        R"("intermediate_size": 300, "conv_bias": true)", R"("intermediate_size": 300, "layer_types": ["conv"])",
        R"("intermediate_size": 300, "layer_types": ["conv", "conv", "conv", "sliding_attention"])"})
    EXPECT_FALSE(parse_model(config(more), "config.json")) << more;
}

TEST(HybridFamilies, FalconH1sMultipliersOfInputsAreFactorsOfWhatFollows) {
  const std::string begin = R"({"model_type": "falcon_h1", "hidden_size": 64, "num_hidden_layers": 2,
      "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99,
      "max_position_embeddings": 64, "mamba_n_heads": 4, "mamba_d_state": 8, )";
  const Model m = read(begin + R"("mamba_d_ssm": 128, "key_multiplier": 0.5, "attention_in_multiplier": 2,
      "attention_out_multiplier": 3, "ssm_in_multiplier": 0.5, "ssm_multipliers": [1, 2, 3, 4, 5],
      "mlp_multipliers": [6, 7]})");
  EXPECT_EQ(std::pair(m.score_factor, m.value_scale), std::pair(2.0, 6.0));
  EXPECT_EQ(m.ssm.scales, (std::array<double, 5>{0.5, 1, 1.5, 2, 2.5}));
  EXPECT_EQ(std::pair(m.gate_scale, m.mlp_scale), std::pair(6.0, 7.0));
  EXPECT_FALSE(m.ssm.normed);
  EXPECT_EQ(m.ssm.width, 32);
  const auto written = write_hugging_face(m);
  ASSERT_TRUE(written);
  EXPECT_EQ(essential(read(*written)), essential(m));
  for (const char* more :
       {R"("mamba_d_ssm": 130)", R"("mamba_d_ssm": 128, "mamba_d_head": 16)",
        R"("mamba_d_ssm": 128, "mamba_rms_norm": true)", R"("mamba_d_ssm": 128, "ssm_multipliers": [1, 2])",
        R"("mamba_d_head": 16, "mamba_expand": 1)", R"("mamba_d_ssm": 128, "mlp_multipliers": [0, 1])",
        R"("mamba_d_ssm": 128, "mlp_multipliers": [1, -1])",
        R"("mamba_d_ssm": 128, "attention_in_multiplier": 2e3, "key_multiplier": 2)",
        R"("mamba_d_ssm": 128, "attention_in_multiplier": 2e3, "attention_out_multiplier": 1e4)",
        R"("mamba_d_ssm": 128, "ssm_in_multiplier": 2, "ssm_multipliers": [1, 1, 1, 1, 1e6])",
        R"("mamba_d_ssm": 128, "projectors_bias": true)", R"("mamba_d_ssm": 128, "attn_layer_indices": [0])"})
    EXPECT_FALSE(parse_model(begin + more + "}", "config.json")) << more;
  EXPECT_EQ(read(begin + R"("mamba_d_head": "auto"})").ssm.inner(), 1024) << "the class's own";
  EXPECT_EQ(read(begin + R"("mamba_d_ssm": null})").ssm.inner(), 128) << "twice as wide as the stream";
  EXPECT_EQ(read(begin + R"("mamba_d_ssm": null, "mamba_expand": 3, "mamba_d_head": 48})").ssm.width, 48);
}

TEST(HybridFamilies, ComeBackFromTheConfigurationThatIsWritten) {
  for (const Published& one : published()) {
    Model model = read(one.config);
    EXPECT_TRUE(differences(model).empty()) << one.name;
    if (model.family == Family::minimax) model.rotary_share = 1;  // all that Hugging Face's class has
    const auto text = write_hugging_face(model);
    ASSERT_TRUE(text) << one.config << base::render(text.error(), false);
    EXPECT_EQ(essential(read(*text)), essential(model)) << *text;
    const auto again = parse_model(write_model(model), "model.yaml");
    ASSERT_TRUE(again) << write_model(model);
    EXPECT_EQ(essential(*again), essential(model)) << write_model(model);
  }
}

std::string hybrid(const std::string& keys) {
  return R"({"model_type": "nemotron_h", "head_dim": 8, "hidden_size": 32, "intermediate_size": 64,
             "mamba_head_dim": 8, "mamba_num_heads": 8, "max_position_embeddings": 64, "n_groups": 2,
             "num_attention_heads": 4, "num_hidden_layers": 4, "ssm_state_size": 16, "vocab_size": 96, )" +
         keys + "}";
}

TEST(HybridFamilies, ReadAPatternAsLettersOrAsWords) {
  const Model letters = read(hybrid(R"("hybrid_override_pattern": "M-*-")"));
  EXPECT_EQ(read(hybrid(R"("layers_block_type": ["mamba", "mlp", "attention", "mlp"])")).pattern, letters.pattern);
  std::string unsaid = hybrid(R"("hybrid_override_pattern": "M-*-")");
  unsaid.erase(unsaid.find("\"num_hidden_layers\": 4, "), std::string("\"num_hidden_layers\": 4, ").size());
  EXPECT_EQ(read(unsaid).layers, 4) << "as many as the pattern has";
  EXPECT_EQ(letters.parts(0), (BlockParts{Mixer::mamba, Feed::none}));
  EXPECT_EQ(letters.parts(3), (BlockParts{Mixer::none, Feed::mlp}));
  const Model granite = read(R"({"model_type": "granitemoehybrid", "hidden_size": 32, "shared_intermediate_size": 64,
      "layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_d_head": 8, "mamba_d_state": 16,
      "mamba_n_groups": 1, "mamba_n_heads": 8, "max_position_embeddings": 64, "num_attention_heads": 4,
      "num_hidden_layers": 4, "num_local_experts": 0, "position_embedding_type": "nope", "vocab_size": 96})");
  EXPECT_EQ(granite.parts(2), (BlockParts{Mixer::attention, Feed::mlp}));
  EXPECT_EQ(granite.parts(3), (BlockParts{Mixer::mamba, Feed::mlp}));
  EXPECT_EQ(granite.positions, Positions::none);
}

std::string qwen(const std::string& keys) {
  return R"({"model_type": "qwen3_next", "head_dim": 16, "hidden_size": 32, "intermediate_size": 64,
             "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
             "linear_value_head_dim": 8, "max_position_embeddings": 64, "moe_intermediate_size": 16,
             "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4, "num_key_value_heads": 2,
             "shared_expert_intermediate_size": 16, "vocab_size": 96, )" +
         keys + "}";
}

TEST(HybridFamilies, PlaceGatedDeltaNetworksByIntervalOrByList) {
  const auto mixers = [](const Model& model) {
    std::string all;
    for (std::int64_t i = 0; i < model.layers; ++i) all += word_of(model.parts(i)) + " ";
    return all;
  };
  const std::string usual = "delta+experts delta+experts delta+experts attention+experts ";
  EXPECT_EQ(mixers(read(qwen(R"("num_experts": 8)"))), usual) << "every fourth attends";
  EXPECT_EQ(mixers(read(qwen(R"("num_experts": 8, "layer_types": ["linear_attention", "linear_attention",
                                 "linear_attention", "full_attention"], "full_attention_interval": 2)"))),
            usual)
      << "the list says it";
  EXPECT_EQ(mixers(read(qwen(R"("num_experts": 8, "full_attention_interval": 2, "mlp_only_layers": [1])"))),
            "delta+experts attention+mlp delta+experts attention+experts ");
  EXPECT_EQ(mixers(read(qwen(R"("num_experts": 8, "decoder_sparse_step": 2)"))),
            "delta+mlp delta+experts delta+mlp attention+experts ");
}

// By hand, as Qwen3-Next's above: the text models of Qwen3.5 27B, whose blocks have MLPs, and 35B-A3B.
TEST(HybridFamilies, CountQwen35AsItsNameSays) {
  const std::string both = R"(, "attn_output_gate": true, "full_attention_interval": 4, "head_dim": 256,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
      "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
      "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-06, "vocab_size": 248320,
      "rope_parameters": {"mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25}}, "tie_word_embeddings": false})";
  const Model dense = read(R"({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text",
      "hidden_size": 5120, "intermediate_size": 17408, "linear_num_value_heads": 48, "num_attention_heads": 24,
      "num_hidden_layers": 64, "num_key_value_heads": 4)" +
                           both);
  EXPECT_EQ(parameters(dense), 48LL * 115'876'064 + 16LL * 104'858'112 + 64LL * (3 * 5120 * 17408 + 2 * 5120) +
                                   2LL * 248'320 * 5120 + 5120);
  EXPECT_EQ(parameters(dense), 26'895'998'464);
  EXPECT_EQ(dense.rope_theta, 1e7);
  EXPECT_EQ(dense.parts(3), (BlockParts{Mixer::attention, Feed::mlp}));
  const Model mixture = read(R"({"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text",
      "hidden_size": 2048, "linear_num_value_heads": 32, "moe_intermediate_size": 512, "num_attention_heads": 16,
      "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2,
      "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512)" +
                             both);
  EXPECT_EQ(parameters(mixture), 30LL * 33'718'464 + 10LL * 27'263'488 +
                                     40LL * (256 * 2048 + 257 * 3 * 2048 * 512 + 2048 + 2 * 2048) +
                                     2LL * 248'320 * 2048 + 2048);
  EXPECT_EQ(parameters(mixture), 34'660'610'688);
  EXPECT_EQ(dense.family, Family::qwen3_5);
  EXPECT_EQ(mixture.family, Family::qwen3_5_moe);
  for (const Model& one : {dense, mixture}) {
    EXPECT_TRUE(differences(one).empty());
    const auto text = write_hugging_face(one);
    ASSERT_TRUE(text) << base::render(text.error(), false);
    EXPECT_EQ(essential(read(*text)), essential(one)) << *text;
  }
  EXPECT_TRUE(differences(read(published().back().config)).empty());
}

TEST(HybridFamilies, WriteWhichOfQwensLayersHaveExperts) {
  const Model model = read(qwen(R"("num_experts": 8, "full_attention_interval": 2, "mlp_only_layers": [1])"));
  const auto text = write_hugging_face(model);
  ASSERT_TRUE(text) << base::render(text.error(), false);
  EXPECT_EQ(essential(read(*text)), essential(model)) << *text;
  Model other = model;
  other.attention_gate = false;
  EXPECT_FALSE(write_hugging_face(other)) << "the class always gates";
}

// What the classes' configurations have where a file is silent.
TEST(HybridFamilies, TakeTheClasssSizesWhereAFileLeavesThemOut) {
  const Model qwen = read(R"({"model_type": "qwen3_next", "hidden_size": 64, "max_position_embeddings": 64,
      "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 96})");
  const StateSpace& s = qwen.ssm;
  EXPECT_EQ((std::vector<std::int64_t>{s.heads, s.width, s.groups, s.state}),
            (std::vector<std::int64_t>{32, 128, 16, 128}));
  const Experts& e = qwen.experts;
  EXPECT_EQ((std::vector<std::int64_t>{e.count, e.chosen, e.hidden, e.shared}),
            (std::vector<std::int64_t>{512, 10, 512, 512}));
  const Model granite = read(R"({"model_type": "granitemoehybrid", "hidden_size": 32, "intermediate_size": 24,
      "shared_intermediate_size": 64, "layer_types": ["mamba", "attention"], "mamba_d_head": 8, "mamba_d_state": 16,
      "mamba_n_groups": 1, "mamba_n_heads": 8, "max_position_embeddings": 64, "num_attention_heads": 4,
      "num_hidden_layers": 2, "vocab_size": 96})");
  EXPECT_EQ(granite.experts.count, 8);
  EXPECT_EQ(granite.experts.chosen, 2);
}

TEST(HybridFamilies, RefuseStepsWithBounds) {
  const std::string all = R"("hybrid_override_pattern": "M-*-", "time_step_limit": )";
  for (const char* none : {"[0.0, Infinity]", "[0.0, 1e+308]", "[0, Infinity]"})
    EXPECT_EQ(read(hybrid(all + none)).layers, 4);
  for (const char* some : {"[0.0, 0.5]", "[0.001, Infinity]", "[0.001, 0.1]", "[0.0]"}) {
    const auto refused = parse_model(hybrid(all + some), "config.json");
    ASSERT_FALSE(refused) << some;
    EXPECT_NE(base::render(refused.error(), false).find("time_step_limit"), std::string::npos) << some;
  }
}

TEST(HybridFamilies, RefuseQwensLayersOfAnotherKind) {
  for (const auto& [keys, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("num_experts": 8, "layer_types": ["linear_attention", "full_attention"])", "pattern of 2 layers"},
           {R"("num_experts": 8, "layer_types": ["linear_attention", "full_attention", "sliding_attention", "mamba"])",
            "kind `sliding_attention`"},
           {R"("num_experts": 8, "attention_bias": true)", "attention_bias"},
           {R"("num_experts": 8, "mlp_only_layers": [0, 1, 2, 3])", "the model has some if one does"},
           {R"("num_experts": 8, "full_attention_interval": 1)", "no block of the pattern"}}) {
    const auto refused = parse_model(qwen(keys), "config.json");
    ASSERT_FALSE(refused) << keys;
    EXPECT_NE(base::render(refused.error(), false).find(what), std::string::npos)
        << base::render(refused.error(), false);
  }
}

TEST(HybridFamilies, RefuseLayersOfAnotherKind) {
  for (const auto& [keys, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("hybrid_override_pattern": "M-X-")", "kind `X`"},
           {R"("hybrid_override_pattern": "M-*")", "pattern of 3 layers for a model of 4"},
           {R"("layers_block_type": ["mamba", "mlp", "linear_attention", "mlp"])", "linear_attention"}}) {
    const auto refused = parse_model(hybrid(keys), "config.json");
    ASSERT_FALSE(refused) << keys;
    EXPECT_NE(base::render(refused.error(), false).find(what), std::string::npos)
        << base::render(refused.error(), false);
  }
}

}  // namespace hybrid_families_test
}  // namespace orrery::models
