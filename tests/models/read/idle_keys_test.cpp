// Keys of a config.json that nothing asks for are warned of, unless they change nothing; values of a wrong type are
// errors at their place; of files that nest, which family they are.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "models/layers/counts.h"
#include "models/read/families.h"
#include "models/read/hugging_face.h"
#include "models/read/original.h"
#include "models/read/read.h"
#include "tests/models/published_mixtures.h"
#include "tests/models/read/published.h"

namespace orrery::models {
namespace idle_keys_test {

std::string warnings_of(const std::string& text) {
  base::Diagnostics warnings;
  const auto model = parse_model(text, "config.json", &warnings);
  EXPECT_TRUE(model.has_value()) << text << base::render(model.error(), false);
  return base::render(warnings, false);
}

Model read(const std::string& text) {
  const auto model = parse_model(text, "config.json");
  EXPECT_TRUE(model.has_value()) << text << base::render(model.error(), false);
  return model.value_or(Model{});
}

std::string refused(const std::string& text) {
  const auto model = parse_model(text, "config.json");
  return model ? "(accepted)" : base::render(model.error(), false);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string small(const std::string& family, const std::string& more) {
  return "{\"model_type\": \"" + family +
         R"(", "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 64, "num_attention_heads": 4,
 "num_hidden_layers": 2, "vocab_size": 99)" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

TEST(UnreadKeys, AreNamedWithTheirPlaceAndWhatTheyMayBeMeantFor) {
  const std::string warned = warnings_of(small("llama", R"(  "num_key_value_head": 2)"));
  EXPECT_TRUE(has(warned, "warning[E0113]: key `num_key_value_head` is not read")) << warned;
  EXPECT_TRUE(has(warned, "config.json:3:3")) << warned;
  EXPECT_TRUE(has(warned, "did you mean `num_key_value_heads`?")) << warned;
  EXPECT_TRUE(has(warnings_of(small("llama", R"("use_rope_layers": [1, 0])")), "in orrery's own form"));
  EXPECT_TRUE(has(warnings_of(small("qwen2", R"("sink": true)")), "`sink`"));
}

TEST(UnreadKeys, AreNamedWithinMapsThatAreRead) {
  const std::string warned =
      warnings_of(small("llama", R"("rope_scaling": {"rope_type": "linear", "factor": 2, "facto": 3})"));
  EXPECT_TRUE(has(warned, "key `rope_scaling.facto` is not read")) << warned;
  EXPECT_FALSE(has(warned, "did you mean")) << "factor is there already: " << warned;
}

TEST(UnreadKeys, OfWhatChangesNothingAreSilent) {
  EXPECT_EQ(warnings_of(small("llama", R"("bos_token_id": 1, "image_token_id": 7, "transformers_version": "5.0",
      "torch_dtype": "bfloat16", "use_cache": true, "temperature": 0.6, "id2label": {"0": "no"}, "mlp_bias": false,
      "unknown_to_all": null, "is_encoder_decoder": false)")),
            "");
  EXPECT_TRUE(has(warnings_of(small("llama", R"("is_encoder_decoder": true)")), "`is_encoder_decoder`"));
  // A window that is switched off.
  EXPECT_EQ(warnings_of(small("qwen2", R"("use_sliding_window": false, "sliding_window": 16)")), "");
}

TEST(UnreadKeys, AreInNoPublishedConfiguration) {
  for (const auto& one : testing::published()) EXPECT_EQ(warnings_of(one.config), "") << one.config;
  for (const auto& one : testing::configurations()) EXPECT_EQ(warnings_of(one.config), "") << one.config;
}

TEST(UnreadKeys, AreInNoConfigurationThatIsWritten) {
  int count = 0;
  const auto expect_silent = [&](const char* config) {
    const auto written = write_hugging_face(read(config));
    if (written) {
      ++count;
      EXPECT_EQ(warnings_of(*written), "") << *written;
    }
  };
  for (const auto& one : testing::published()) expect_silent(one.config);
  for (const auto& one : testing::configurations()) expect_silent(one.config);
  EXPECT_GT(count, 10);
}

TEST(UnreadKeys, ThatEndAsIdsOfWordsDoAreNamed) {
  const std::string warned = warnings_of(
      small("granitemoe", R"("num_local_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 3)"));
  EXPECT_TRUE(has(warned, "key `num_experts_per_token` is not read")) << warned;
}

// As transformers 5 saves them.
TEST(UnreadKeys, AreNoKindsOfRotation) {
  const std::string plain = R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000})";
  EXPECT_EQ(warnings_of(small("gpt_neox", plain)), "");
  EXPECT_EQ(warnings_of(small(
                "mixtral", R"("num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2, )" + plain)),
            "");
  EXPECT_EQ(warnings_of(small("gemma3_text", R"("rope_parameters": {
      "full_attention": {"rope_type": "default", "rope_theta": 1000000},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000}})")),
            "");
}

TEST(UnreadKeys, OutsideTheLanguageModelAreWarnedOfOnlyIfTheyResembleAKnownOne) {
  const auto nested = [](const std::string& root) {
    return R"({"model_type": "mistral3", "projector_hidden_act": "gelu", "vision_config": {"hidden_size": 8}, )" +
           root + "\"text_config\": " + small("mistral", R"("num_key_value_heads": 2)") + "}";
  };
  EXPECT_EQ(warnings_of(nested("")), "");
  EXPECT_TRUE(has(warnings_of(nested(R"("tie_word_embedding": true, )")), "did you mean `tie_word_embeddings`?"));
}

TEST(ConfigKeysOfAWrongType, AreErrorsAtTheirPlace) {
  for (const auto& [family, key, value] : {std::array{"llama", "rope_scaling", "\"linear\""},
                                           {"step3p5", "attention_other_setting", "3"},
                                           {"minimax_m3", "sparse_attention_config", "[]"},
                                           {"mpt", "attn_config", "true"},
                                           {"deepseek_v4", "compress_rates", "[4, 128]"}}) {
    const std::string said = refused(small(family, std::string("  \"") + key + "\": " + value));
    EXPECT_TRUE(has(said, "error[E0104]: `" + std::string(key) + "` must be a map of keys")) << said;
    EXPECT_TRUE(has(said, "config.json:3:" + std::to_string(7 + std::string(key).size()))) << said;
  }
  EXPECT_TRUE(has(refused(small("smollm3", R"("no_rope_layers": 3)")), "E0104"));
  EXPECT_TRUE(has(refused(R"({"model_type": "llava", "text_config": 3})"), "E0104"));
}

TEST(Keys, OfWhichAClassHasOneValueRefuseAnother) {
  EXPECT_TRUE(has(refused(small("llama", R"("rope_interleaved": true)")), "`rope_interleaved: true` is not supported"));
  EXPECT_EQ(warnings_of(small("llama", R"("rope_interleaved": false)")), "");
}

TEST(OddWidthsOfHeads, AreErrorsAtTheWidthThatTheFileSays) {
  const std::string said = refused(small("llama", R"("head_dim": 15)"));
  EXPECT_TRUE(has(said, "even head width, found 15") && has(said, "config.json:3:13")) << said;
}

TEST(FilesOfOurOwnForm, WithAWordOfOthersAreToldOfTheirFamily) {
  const std::string said = refused(R"({"layers": 2, "heads": 4, "hidden_size": 64})");
  EXPECT_TRUE(has(said, "key `family` is missing")) << said;
}

TEST(QuantizedFiles, SayThatNothingHereGoesByIt) {
  const Model model = read(small("llama", R"("quantization_config": {"quant_method": "fp8", "bits": 8})"));
  EXPECT_TRUE(has(model.sources.back(), "fewer bits (quantization_config: fp8)")) << model.sources.back();
}

TEST(LanguageModels, AreOfTheFamilyThatTheWholeFileNames) {
  const Model model = read(R"({"model_type": "minimax_m3_vl", "text_config": {"model_type": "minimax_m2",
      "num_hidden_layers": 4, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 64}})");
  EXPECT_EQ(model.family, Family::minimax_m3);
  EXPECT_EQ(model.hidden, 6144);
}

TEST(Bert, HasNoPoolerInTheClassThatPredictsMaskedTokensAlone) {
  const std::string sizes = R"("model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "vocab_size": 30522,
      "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512})";
  const Model masked = read(R"({"architectures": ["BertForMaskedLM"], )" + sizes);
  EXPECT_EQ(parameters(masked), 109'514'298);
  EXPECT_EQ(parameters(read("{" + sizes)), 110'106'428);
  EXPECT_EQ(parameters(read(R"({"architectures": ["BertForPreTraining"], )" + sizes)), 110'106'428);
  const auto written = write_hugging_face(masked);
  ASSERT_TRUE(written) << base::render(written.error(), false);
  EXPECT_TRUE(has(*written, "\"BertForMaskedLM\"")) << *written;
  EXPECT_FALSE(read(*written).next_sentence);
}

TEST(Step, WritesItsScaledRotation) {
  const std::string sizes = R"({"model_type": "step3p5", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 99,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "sliding_window": 8,
      "moe_intermediate_size": 32, "share_expert_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "max_position_embeddings": 64,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
      "rope_theta": [5e6, 1e4, 1e4, 1e4], "rope_scaling": )";
  for (const char* scaling : {R"({"rope_type": "llama3", "factor": 2, "original_max_position_embeddings": 32})",
                              R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 32})",
                              R"({"rope_type": "linear", "factor": 4})"}) {
    const Model model = read(sizes + scaling + "}");
    EXPECT_NE(model.rope_scaling.kind, RopeKind::none);
    const auto written = write_hugging_face(model);
    ASSERT_TRUE(written) << base::render(written.error(), false);
    EXPECT_EQ(read(*written).rope_scaling, model.rope_scaling) << *written;
    EXPECT_EQ(read(*written).window_theta, 1e4);
    EXPECT_EQ(warnings_of(*written), "") << *written;
  }
}

// transformers' class saves the rotation of layers that read runs beside that of the others.
TEST(DeepSeekV4, ReadsItsRotationsAsItsClassSavesThem) {
  const auto config = [](const std::string& rotation) {
    return R"({"model_type": "deepseek_v4", "num_hidden_layers": 3, "head_dim": 128, )" + rotation + "}";
  };
  const std::string scaled = R"("rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 65536)";
  const Model first = read(config(R"("rope_theta": 20000, "compress_rope_theta": 80000, "qk_rope_head_dim": 32,
      "rope_scaling": {)" + scaled +
                                  "}"));
  const std::string saved = config(R"("partial_rotary_factor": 0.25, "rope_parameters": {
      "main": {"rope_type": "default", "rope_theta": 20000, "partial_rotary_factor": 0.25},
      "compress": {"rope_theta": 80000, "partial_rotary_factor": 0.25, "attention_factor": 1.0, )" +
                                   scaled + "}}");
  Model again = read(saved);
  EXPECT_EQ(again.compressed.theta, 80000);
  EXPECT_EQ(again.rope_theta, 20000);
  EXPECT_EQ(again.compressed.rope, 32);
  EXPECT_EQ(again.rope_scaling, first.rope_scaling);
  EXPECT_EQ(warnings_of(saved), "");
}

}  // namespace idle_keys_test
}  // namespace orrery::models
