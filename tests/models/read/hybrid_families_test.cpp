// Patterns of layers in config.json: as letters, as words, as numbers of layers; what they count; and those that no
// model here has.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/counts.h"
#include "models/read/hugging_face.h"
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

// Nemotron 3 Nano 30B-A3B: 6 of 128 experts and the shared one.
TEST(HybridFamilies, CountThePassingTokensParameters) {
  EXPECT_EQ(parameters_active(read(published()[2].config)), 3'580'073'408);
}

TEST(HybridFamilies, ComeBackFromTheConfigurationThatIsWritten) {
  for (const Published& one : published()) {
    const Model model = read(one.config);
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
      "num_hidden_layers": 4, "position_embedding_type": "nope", "vocab_size": 96})");
  EXPECT_EQ(granite.parts(2), (BlockParts{Mixer::attention, Feed::mlp}));
  EXPECT_EQ(granite.parts(3), (BlockParts{Mixer::mamba, Feed::mlp}));
  EXPECT_EQ(granite.positions, Positions::none);
}

TEST(HybridFamilies, RefuseLayersOfAnotherKind) {
  for (const auto& [keys, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("hybrid_override_pattern": "M-X-")", "kind `X`"},
           {R"("hybrid_override_pattern": "M-*")", "pattern of 3 layers for a model of 4"},
           {R"("layers_block_type": ["mamba", "mlp", "linear_attention", "mlp"])", "linear_attention"},
           {R"("hybrid_override_pattern": "MEM*", "n_routed_experts": 8, "num_experts_per_tok": 2,
               "moe_intermediate_size": 16, "moe_latent_size": 8)",
            "narrower copy"}}) {
    const auto refused = parse_model(hybrid(keys), "config.json");
    ASSERT_FALSE(refused) << keys;
    EXPECT_NE(base::render(refused.error(), false).find(what), std::string::npos)
        << base::render(refused.error(), false);
  }
}

}  // namespace hybrid_families_test
}  // namespace orrery::models
