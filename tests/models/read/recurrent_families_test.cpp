// Families whose layers between attention are other mixers: lists of layers, sizes that a pattern's mixers have, what a
// silent file means, and what is not written.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/layers/mixers.h"
#include "models/read/families.h"
#include "models/read/hugging_face.h"
#include "models/read/original.h"
#include "models/read/read.h"
#include "tests/models/read/published.h"

namespace orrery::models {
namespace recurrent_families_test {

Model read(const std::string& config) {
  const auto model = parse_model(config, "config.json");
  EXPECT_TRUE(model) << base::render(model.error(), false);
  return model ? *model : Model{};
}

/// A small MiniMax with these keys, of a class that has no key of rotated columns.
std::string small_minimax(const std::string& more) {
  return R"({"model_type": "minimax", "hidden_size": 64, "intermediate_size": 32, "max_position_embeddings": 64,
      "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4, "num_local_experts": 4,
      "vocab_size": 96, "num_key_value_heads": 2, )" +
         more + "}";
}

TEST(RecurrentFamilies, ReadListsOfLayersOrRefuseThem) {
  const auto layers = [](const std::string& keys) {
    std::string all;
    const Model m = read(small_minimax(keys));
    for (std::int64_t i = 0; i < m.layers; ++i) all += m.parts(i).mixer == Mixer::attention ? 'a' : 'l';
    return all;
  };
  const std::string words = R"("layer_types": ["linear_attention", "linear_attention", "full_attention",
      "full_attention"])";
  EXPECT_EQ(layers(words), "llaa");
  EXPECT_EQ(layers(words + R"(, "attn_type_list": [0, 0, 1, 1])"), "llaa");
  EXPECT_EQ(layers(R"("layer_types": null, "attn_type_list": [0, 0, 0, 1])"), "llla");
  EXPECT_EQ(layers(R"("layer_types": null, "attn_type_list": null)"), "alal");
  for (const std::string& keys :
       {words + R"(, "attn_type_list": [0, 1, 0, 1])", std::string(R"("layer_types": "full_attention")"),
        std::string(R"("layer_types": 1)"), std::string(R"("layer_types": [])"), std::string(R"("attn_type_list": 1)"),
        std::string(R"("attn_type_list": [])"), std::string(R"("attn_type_list": [0, 1, 0])"),
        std::string(R"("attn_type_list": [0, 1, 0, 2])")}) {
    const auto refused = parse_model(small_minimax(keys), "config.json");
    ASSERT_FALSE(refused) << keys;
    EXPECT_EQ(refused.error().front().code, "E0111") << keys;
  }
}

TEST(RecurrentFamilies, RefuseKindsOfLayersThatAreNoListInOtherFamiliesToo) {
  const auto typed = [](const std::string& types) {
    return parse_model(R"({"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 32, "head_dim": 16,
        "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "vocab_size": 96, "sliding_window": 8, "layer_types": )" +
                           types + "}",
                       "config.json");
  };
  for (const char* good : {R"(["sliding_attention", "full_attention"])", "null"}) EXPECT_TRUE(typed(good)) << good;
  for (const char* bad : {R"("full_attention")", "2", "[]", "true"}) EXPECT_FALSE(typed(bad)) << bad;
}

TEST(RecurrentFamilies, SayThatRandomFactorsBeforeRoutersAreLeftOut) {
  EXPECT_TRUE(differences(read(small_minimax(R"("router_jitter_noise": 0.0)"))).empty());
  EXPECT_EQ(differences(read(small_minimax(R"("router_jitter_noise": 0.01)"))).size(), 1U);
}

// Null means all heads in any of them.
TEST(RecurrentFamilies, ShareEightHeadsOfKeysAsTheirClassesDoWhereAFileIsSilent) {
  for (const char* type : {"jamba", "minimax", "mixtral", "falcon_h1"}) {
    const auto heads = [&](const std::string& key) {
      const std::string own = std::string(type) == "falcon_h1" ? R"("mamba_d_ssm": 128, "mamba_n_heads": 4, )"
                                                               : R"("num_experts_per_tok": 2, "num_experts": 4, )";
      return read(R"({"model_type": ")" + std::string(type) + R"(", "hidden_size": 64, "intermediate_size": 32,
          "max_position_embeddings": 64, "num_attention_heads": 16, "num_hidden_layers": 8, )" +
                  own + key + R"("vocab_size": 96})")
          .kv_heads;
    };
    EXPECT_EQ(heads(""), 8) << type;
    EXPECT_EQ(heads(R"("num_key_value_heads": null, )"), 16) << type;
    EXPECT_EQ(heads(R"("num_key_value_heads": 4, )"), 4) << type;
  }
}

TEST(RecurrentFamilies, RefuseSizesThatNoMixerOfThePatternHas) {
  const auto model = [](const std::string& sizes) {
    return parse_model(
        "name: m\nfamily: llama\nlayers: 2\nhidden: 16\nheads: 4\nffn_hidden: 8\nvocab: 32\nmax_sequence: 16\n"
        "pattern: [lightning+mlp, attention+mlp]\n"
        "state_space: {heads: 4, width: 4, groups: 4, state: 4" +
            sizes + "}\n",
        "model.yaml");
  };
  const auto usual = model(", taps: 4, conv_bias: false");
  EXPECT_TRUE(usual) << base::render(usual.error(), false);
  for (const auto& [sizes, what] : {std::pair{", taps: 3", "`taps`"}, {", rank: 2", "`rank`"}}) {
    const auto refused = model(sizes);
    ASSERT_FALSE(refused) << sizes;
    EXPECT_NE(base::render(refused.error(), false).find(what), std::string::npos);
  }
}

// What a row shows to whoever lacks its sizes has to be accepted.
TEST(RecurrentFamilies, ShowExamplesOfSizesThatAreAccepted) {
  for (const MixerTraits& one : mixers()) {
    if (one.key == nullptr) continue;
    std::string text = one.example;
    const std::string join = ", and pattern: ";
    const std::size_t at = text.find(join);
    ASSERT_NE(at, std::string::npos) << one.example;
    text.replace(at, join.size(), "\npattern: ");
    const auto model = parse_model(
        "name: m\nfamily: llama\nlayers: 2\nhidden: 4096\nheads: 32\nffn_hidden: 8\nvocab: 32\nmax_sequence: 16\n"
        "positions: none\n" +
            text,
        "model.yaml");
    EXPECT_TRUE(model) << one.word << ": " << base::render(model.error(), false);
  }
}

const char* const kMambas[] = {
    R"({"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 96})",
    R"({"model_type": "falcon_mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 96})",
    R"({"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 96, "num_heads": 8,
        "head_dim": 16, "n_groups": 1, "state_size": 16})"};

TEST(RecurrentFamilies, WriteModelsOfAnyLengthWhereTheirClassHasNoLongest) {
  for (const char* config : kMambas) {
    Model model = read(config);
    model.max_sequence = 64;
    const auto written = write_hugging_face(model);
    EXPECT_TRUE(written) << base::render(written.error(), false);
    model.bias = true;
    EXPECT_FALSE(write_hugging_face(model)) << "its class has no such biases: " << config;
  }
}

TEST(RecurrentFamilies, StartWithTheirClassesDeviationsWhereAFileIsSilent) {
  for (const char* config : kMambas) EXPECT_EQ(read(config).initial_stddev, 0.1) << config;
  for (const auto& [type, usual] : {std::pair{"llama", 0.02}, {"nemotron", 0.0134}, {"starcoder2", 0.018042}})
    EXPECT_EQ(read(std::string(R"({"model_type": ")") + type +
                   R"(", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
                      "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 64})")
                  .initial_stddev,
              usual)
        << type;
}

// config.json of state-spaces/mamba-2.8b and mamba2-2.7b, and one with sizes of its own.
TEST(RecurrentFamilies, SayWhatFilesOfMambasAuthorsLeaveOut) {
  struct Case {
    std::string file, adds;
  };
  const std::string sizes = R"({"d_model": 2560, "n_layer": 64, "rms_norm": true, "residual_in_fp32": true,
      "fused_add_norm": true, "pad_vocab_size_multiple": 8, )";
  for (const Case& one : {
           Case{sizes + R"("vocab_size": 50277, "ssm_cfg": {})", R"("model_type": "mamba")"},
           Case{sizes + R"("vocab_size": 50288, "ssm_cfg": {"layer": "Mamba2"}, "attn_layer_idx": [], "attn_cfg": {},
                           "d_intermediate": 0, "tie_embeddings": true)",
                R"("model_type": "mamba2", "state_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 64, )"
                R"("n_groups": 1, "num_heads": 80, "tie_word_embeddings": true)"},
           Case{sizes + R"("vocab_size": 50288, "ssm_cfg": {"d_state": 32}, "tie_embeddings": false)",
                R"("model_type": "mamba", "state_size": 32, "tie_word_embeddings": false)"},
       }) {
    const auto refused = parse_model(one.file + "}", "config.json");
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().size(), 1U) << base::render(refused.error(), false);
    EXPECT_EQ(refused.error().front().code, "E0110");
    const std::string& help = refused.error().front().help;
    EXPECT_NE(help.find("model_type is missing in this file of Mamba's authors: add " + one.adds), std::string::npos)
        << help;
    EXPECT_EQ(help.find("\"vocab_size\": 50280") != std::string::npos, one.file.find("50277") != std::string::npos);
    EXPECT_EQ(read(one.file + ", " + one.adds + "}").hidden, 2560) << "what is promised holds";
  }
  const auto attends = parse_model(sizes + R"("vocab_size": 50288, "ssm_cfg": {"layer": "Mamba2"},
      "attn_layer_idx": [9, 18]})",
                                   "config.json");
  ASSERT_FALSE(attends);
  EXPECT_EQ(attends.error().front().code, "E0110");
  EXPECT_EQ(attends.error().front().help.find("Mamba's authors"), std::string::npos);
}

// Its class turns other pairs of columns than latent attention here.
TEST(RecurrentFamilies, WriteNoMiniCpm3) {
  int seen = 0;
  for (const testing::Published& one : testing::published()) {
    const Model model = read(one.config);
    if (model.family != Family::minicpm3) continue;
    ++seen;
    EXPECT_EQ(differences(model).size(), 1U);
    const auto refused = write_hugging_face(model);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().front().code, "E0604");
    EXPECT_NE(refused.error().front().message.find("MiniCPM3ForCausalLM"), std::string::npos);
  }
  EXPECT_EQ(seen, 1);
}

}  // namespace recurrent_families_test
}  // namespace orrery::models
