// Model files: the catalogue, our form, Hugging Face's, and what is refused with which words.
#include "models/read/read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/layers/counts.h"
#include "models/read/families.h"
#include "models/read/hugging_face.h"
#include "models/read/original.h"

namespace orrery::models {
namespace read_test {

std::string catalogue(const std::string& name) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/" + name + ".yaml");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Model read(const std::string& text, const std::string& file = "model.yaml") {
  const auto model = parse_model(text, file);
  EXPECT_TRUE(model.has_value()) << base::render(model.error(), false);
  return model.value_or(Model{});
}

/// The words that `family` takes.
std::string families_in_order() {
  std::string all;
  for (const FamilyTraits& one : families()) all += std::string(one.name) + ", ";
  return all + "dlrm";
}

std::string refused(const std::string& text, const std::string& file = "model.yaml") {
  const auto model = parse_model(text, file);
  return model ? "(accepted)" : base::render(model.error(), false);
}

// config.json of gpt2, bert-large-uncased (as the class that it was trained as) and Llama-2-7b-hf, without generation.
const char* const kGpt2 = R"({
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1,
  "bos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 1024,
  "n_embd": 768,
  "n_head": 12,
  "n_layer": 12,
  "n_positions": 1024,
  "resid_pdrop": 0.1,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257
})";
const char* const kBert = R"({
  "architectures": ["BertForPreTraining"],
  "hidden_act": "gelu",
  "hidden_size": 1024,
  "initializer_range": 0.02,
  "intermediate_size": 4096,
  "layer_norm_eps": 1e-12,
  "max_position_embeddings": 512,
  "model_type": "bert",
  "num_attention_heads": 16,
  "num_hidden_layers": 24,
  "position_embedding_type": "absolute",
  "type_vocab_size": 2,
  "vocab_size": 30522
})";
const char* const kLlama2 = R"({
  "_name_or_path": "meta-llama/Llama-2-7b-hf",
  "architectures": ["LlamaForCausalLM"],
  "hidden_act": "silu",
  "hidden_size": 4096,
  "initializer_range": 0.02,
  "intermediate_size": 11008,
  "max_position_embeddings": 4096,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 32,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": null,
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "vocab_size": 32000
})";

// Equal in what is trained; name and sources may differ.
void expect_same(Model a, Model b) {
  a.name = b.name = "";
  a.sources = b.sources = {};
  EXPECT_EQ(a, b) << write_model(a) << "against\n" << write_model(b);
}

TEST(Catalogue, EveryFileReadsNamesItselfAndItsSources) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/models/catalog")) {
    const std::string stem = entry.path().stem().string();
    const Model m = read(catalogue(stem), entry.path().string());
    EXPECT_EQ(m.name, stem);
    EXPECT_FALSE(m.sources.empty()) << stem;
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(Catalogue, HasThePublishedParameterCounts) {
  EXPECT_EQ(parameters(read(catalogue("gpt2-124m"))), 124'439'808);
  EXPECT_EQ(parameters(read(catalogue("gpt2-355m"))), 354'823'168);
  EXPECT_EQ(parameters(read(catalogue("gpt2-774m"))), 774'030'080);
  EXPECT_EQ(parameters(read(catalogue("gpt2-1558m"))), 1'557'611'200);
  EXPECT_EQ(parameters(read(catalogue("llama2-7b"))), 6'738'415'616);
  EXPECT_EQ(parameters(read(catalogue("llama2-13b"))), 13'015'864'320);
  EXPECT_EQ(parameters(read(catalogue("llama2-70b"))), 68'976'648'192);
  EXPECT_EQ(parameters(read(catalogue("llama3-8b"))), 8'030'261'248);
  EXPECT_EQ(parameters(read(catalogue("llama3-70b"))), 70'553'706'496);
  EXPECT_EQ(parameters(read(catalogue("llama3-405b"))), 405'853'388'800);
  EXPECT_EQ(parameters(read(catalogue("mistral-7b"))), 7'241'732'096);
  EXPECT_EQ(parameters(read(catalogue("tinyllama-1.1b"))), 1'100'048'384);
  EXPECT_NEAR(static_cast<double>(parameters(read(catalogue("gpt3-175b")))), 175e9, 0.5e9);
  EXPECT_EQ(parameters(read(catalogue("bert-large"))), 336226108);  // Hugging Face's BertForPreTraining
  EXPECT_EQ(parameters(read(catalogue("bert-base"))), 110106428);
}

TEST(HuggingFace, AgreesWithTheCatalogue) {
  // But for dropout: the catalogue's models train without.
  const auto undropped = [](Model m) {
    m.dropout = {};
    return m;
  };
  EXPECT_EQ(read(kGpt2).dropout, (Dropout{0, 0.1, 0.1}));
  expect_same(undropped(read(kGpt2)), read(catalogue("gpt2-124m")));
  expect_same(undropped(read(kBert)), read(catalogue("bert-large")));
  expect_same(read(kLlama2), read(catalogue("llama2-7b")));
}

TEST(HuggingFace, IsNamedByItsIdElseByItsFolder) {
  EXPECT_EQ(read(kLlama2, "x/config.json").name, "meta-llama/Llama-2-7b-hf");
  EXPECT_EQ(read(kGpt2, "models/my-gpt2/config.json").name, "my-gpt2");
  EXPECT_EQ(read(kGpt2, "my.json").name, "my");
}

std::string without(std::string text, const std::string& line_with) {
  const std::size_t at = text.find(line_with);
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.erase(begin, text.find('\n', at) - begin + 1);
}

std::string with(std::string text, const std::string& before, const std::string& line) {
  return text.insert(text.rfind('\n', text.find(before)) + 1, line + "\n");
}

TEST(HuggingFace, TakesOlderAndNewerFieldNames) {
  expect_same(read(without(kGpt2, "\"model_type\"")), read(kGpt2));   // by architecture
  expect_same(read(without(kGpt2, "\"n_positions\"")), read(kGpt2));  // n_ctx
  expect_same(read(without(kLlama2, "num_key_value_heads")), read(kLlama2));
  Model llama = read(kLlama2);
  llama.rope_theta = 500000;
  expect_same(read(with(kLlama2, "\"rope_scaling\"", "\"rope_theta\": 500000.0,")), llama);
  expect_same(read(with(kLlama2, "\"rope_scaling\"",
                        "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"default\"},")),
              llama);
  llama.head_dim = 64;
  llama.rope_theta = 10000;
  expect_same(read(with(kLlama2, "\"hidden_size\"", "\"head_dim\": 64,")), llama);
}

TEST(HuggingFace, TakesAMistralForALlamaWithAWindow) {
  // mistralai/Mistral-7B-v0.1: 7,241,732,096 parameters, a window of 4,096 of 32,768 positions; v0.3 has none.
  std::string text = R"({
  "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "sliding_window": 4096,
  "tie_word_embeddings": false, "vocab_size": 32000
})";
  EXPECT_EQ(read(text).family, Family::mistral);
  EXPECT_EQ(parameters(read(text)), 7'241'732'096);
  EXPECT_EQ(read(text).max_sequence, 32768);
  EXPECT_EQ(read(text).window, 4096);
  EXPECT_TRUE(read(text).windowed(0) && read(text).windowed(31));
  EXPECT_EQ(read(without(text, "sliding_window")).window, 0);
  text.replace(text.find("4096,\n  \"tie"), 4, "null");
  EXPECT_EQ(read(text).window, 0);
}

TEST(HuggingFace, FindsTheLanguageModelOfAMultimodalOne) {
  const std::string text =
      std::string("{\"architectures\": [\"XForConditionalGeneration\"], \"model_type\": \"x\",\n\"text_config\": ") +
      kLlama2 + "}";
  expect_same(read(text), read(kLlama2));
}

TEST(HuggingFace, SaysThatALanguageModelIsPartOfAFileAndWhatIsLeftOut) {
  const Model nested =
      read(std::string("{\"model_type\": \"x\", \"thinker_config\": {\"text_config\": ") + kLlama2 + "}}");
  expect_same(nested, read(kLlama2));
  const auto said = [](const Model& m, const char* what) {
    return std::any_of(m.sources.begin(), m.sources.end(),
                       [&](const std::string& one) { return one.find(what) != std::string::npos; });
  };
  EXPECT_TRUE(said(nested, "its language model alone (thinker_config.text_config)"));
  EXPECT_FALSE(said(read(kLlama2), "its language model alone"));
}

TEST(HuggingFace, TakesTheWholesWordOnTiedTablesWhereThePartHasNone) {
  const auto tied = [](const char* of_whole, const char* of_part) {
    return read(std::string(R"({"model_type": "qwen3_vl", )") + of_whole + R"("text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 64, )" +
                of_part + R"("num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99}})")
        .tied_embeddings;
  };
  EXPECT_FALSE(tied("", ""));
  EXPECT_TRUE(tied(R"("tie_word_embeddings": true, )", ""));
  EXPECT_FALSE(tied(R"("tie_word_embeddings": true, )", R"("tie_word_embeddings": false, )"));
}

TEST(HuggingFace, ReadsPhi4MultimodalsLanguageModel) {
  const Model m = read(R"({"model_type": "phi4mm", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 99,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "partial_rotary_factor": 0.75,
      "audio_processor": {"name": "cascades"}, "tie_word_embeddings": true})");
  EXPECT_EQ(m.family, Family::phi3);
  EXPECT_EQ(m.rotary_share, 0.75);
  EXPECT_TRUE(std::any_of(m.sources.begin(), m.sources.end(), [](const std::string& one) {
    return one.find("its language model alone") != std::string::npos;
  }));
}

TEST(HuggingFace, TakesSectionsOfPositionsForThoseOfText) {
  const std::string text = R"({"model_type": "qwen2_5_vl", "hidden_size": 64, "intermediate_size": 128,
      "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99,
      "rope_scaling": {"type": ")";
  EXPECT_TRUE(differences(read(text + R"(mrope", "mrope_section": [2, 3, 3]}})")).empty());
  EXPECT_FALSE(differences(read(text + R"(cubic", "factor": 2}})")).empty());
}

// LLaVA 1.5's file names a Llama of 7B, and of its sizes only those that differ from the class's.
TEST(HuggingFace, TakesTheClasssSizesWhereANestedPartIsSilent) {
  const std::string text = R"({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064,
      "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "rms_norm_eps": 1e-05}})";
  const Model m = read(text);
  EXPECT_EQ(parameters(m), parameters(read(kLlama2)) + 2 * 64 * 4096);
  EXPECT_TRUE(std::any_of(m.sources.begin(), m.sources.end(), [](const std::string& one) {
    return one ==
           "the file leaves out num_hidden_layers, hidden_size, num_attention_heads, intermediate_size: the "
           "class's own";
  }));
  EXPECT_NE(refused(R"({"model_type": "llama", "vocab_size": 32064})").find("E0102"), std::string::npos)
      << "a file by itself says its sizes";
  EXPECT_EQ(read(R"({"text_config": {"model_type": "mistral", "hidden_size": 5120, "head_dim": 128}})").kv_heads, 8);
}

TEST(HuggingFace, SaysWhatOfAnUnreadFamilyIsNotKnownAndWhatReadsIt) {
  struct Case {
    const char* config;
    const char* why;
    const char* nearest;  ///< empty: none
  };
  const std::string sizes = R"("hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
      "num_hidden_layers": 4, "max_position_embeddings": 64, "vocab_size": 99, )";
  for (const Case& one : std::vector<Case>{
           {R"("model_type": "olmo_hybrid", "linear_key_head_dim": 16, "head_dim": 16)",
            "`olmo_hybrid` is not a supported family: some layers are a gated delta rule", "llama"},
           {R"("model_type": "new", "layer_types": ["full_attention", "linear_attention"])",
            "some layers are a linear attention", "llama"},
           {R"("model_type": "deepseek_v5", "compress_ratios": [1, 4], "kv_lora_rank": 16, "q_lora_rank": 16,
               "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 8,
               "num_experts_per_tok": 2, "moe_intermediate_size": 32)",
            "attention reads runs of tokens in a compressed form", "deepseek_v3"},
           {R"("model_type": "mimo_v3_flash", "swa_num_attention_heads": 4, "n_routed_experts": 8,
               "num_experts_per_tok": 2, "moe_intermediate_size": 32)",
            "layers with a window have a number and a width of heads of their own", "glm4_moe"},
           {R"("model_type": "gemma9", "top_k_experts": 8, "num_experts": 8, "attention_k_eq_v": true)",
            "values may be the keys", ""},
           {R"("model_type": "step3")", "what its layers with and without a window each have is not known", "llama"},
           {R"("model_type": "minimax_of_another_kind", "linear_attn_alpha_factor": 1)", "lightning attention",
            "llama"},
       }) {
    const std::string found = refused("{" + sizes + one.config + "}", "config.json");
    EXPECT_NE(found.find("error[E0110]"), std::string::npos) << found;
    EXPECT_NE(found.find(one.why), std::string::npos) << found;
    EXPECT_EQ(found.find("this file is read as if it had none of that") != std::string::npos, *one.nearest != 0)
        << found;
    if (*one.nearest != 0) {
      EXPECT_NE(found.find("with model_type " + std::string(one.nearest) + " this file is read"), std::string::npos)
          << found;
      std::string as = one.config;
      const std::size_t type = as.find(": \"") + 3;
      as.replace(type, as.find('"', type) - type, one.nearest);
      EXPECT_EQ(refused("{" + sizes + as + "}", "config.json"), "(accepted)") << "what is promised holds";
    }
  }
  EXPECT_NE(refused(R"({"model_type": "t5", "d_model": 512})").find("it has an encoder and a decoder"),
            std::string::npos);
}

TEST(HuggingFace, NamesAFamilyThatItDoesNotKnow) {
  EXPECT_EQ(refused("{\n  \"model_type\": \"unheard\",\n  \"num_hidden_layers\": 2\n}\n", "config.json"),
            "error[E0110]: model_type `unheard` is not a supported family\n"
            " --> config.json:2:17\n"
            "  |\n"
            "2 |   \"model_type\": \"unheard\",\n"
            "  |                 ^^^^^^^^^\n"
            "  |\n"
            "  = help: known are " +
                known_model_types() + "; write other models in orrery's own form (docs/formats.md, model.yaml)\n");
  EXPECT_NE(refused("{\"architectures\": [\"GrimbaForCausalLM\"]}").find("architecture `GrimbaForCausalLM`"),
            std::string::npos);
  EXPECT_NE(refused("{\"architectures\": []}").find("E0110"), std::string::npos);
}

TEST(HuggingFace, RefusesVariantsThatAModelCannotSay) {
  for (const char* line : {"\"attention_bias\": true,", "\"mlp_bias\": true,"}) {
    EXPECT_NE(refused(with(kLlama2, "\"rope_scaling\"", line)).find("E0111"), std::string::npos) << line;
  }
  EXPECT_NE(refused(with(kGpt2, "\"n_embd\"", "\"add_cross_attention\": true,")).find("E0111"), std::string::npos);
  EXPECT_NE(refused(with(without(kBert, "position_embedding_type"), "\"vocab_size\"",
                         "\"position_embedding_type\": \"relative_key\","))
                .find("E0111"),
            std::string::npos);
  EXPECT_NE(refused(with(without(kLlama2, "hidden_act"), "\"vocab_size\"", "\"hidden_act\": \"relu\","))
                .find("activation `relu`"),
            std::string::npos);
}

/// A small GLM-5, as another class of the same kind if need be.
std::string small_glm(const std::string& more, const std::string& type = "glm_moe_dsa") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "intermediate_size": 128, "kv_lora_rank": 16,
    "moe_intermediate_size": 32, "n_routed_experts": 8, "num_attention_heads": 4, "num_experts_per_tok": 2,
    "num_hidden_layers": 4, "q_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 32,
    "index_head_dim": 16, "vocab_size": 256, "max_position_embeddings": 512)" +
         more + "}";
}

TEST(HuggingFace, RefusesFactorsOfNothingAndTakesNullAsNoFactor) {
  const auto with = [](const char* key, const char* value) {
    return parse_model(small_glm(std::string(", \"") + key + "\": " + value, "minicpm3"), "config.json");
  };
  for (const char* key : {"scale_depth", "dim_model_base"}) {
    const auto refused = with(key, "0");
    ASSERT_FALSE(refused) << key;
    EXPECT_EQ(refused.error().front().code, "E0111");
    const Model none = with(key, "null").value();
    EXPECT_EQ(std::string(key) == "scale_depth" ? none.residual_scale : none.logit_scale, 1) << key;
  }
}

TEST(HuggingFace, ReadsAMissingRankOfQueriesAsItsClassAndNullAsNone) {
  for (const auto& [type, rank] : {std::pair{"glm_moe_dsa", 2048},
                                   {"glm4_moe_lite", 768},
                                   {"deepseek_v3", 1536},
                                   {"deepseek_v2", 1536},
                                   {"minicpm3", 768}}) {
    const std::string whole = small_glm("", type), key = "\"q_lora_rank\": 32, ";
    const auto instead = [&](const std::string& other) {
      std::string text = whole;
      return read(text.replace(text.find(key), key.size(), other), "config.json").latent.q_rank;
    };
    EXPECT_EQ(instead(key), 32) << type;
    EXPECT_EQ(instead(""), rank) << type;
    if (std::string(type) == "glm_moe_dsa") continue;  // its indexer reads the narrow vector
    EXPECT_EQ(instead("\"q_lora_rank\": null, "), 0) << type;
  }
}

TEST(HuggingFace, RefusesLayersThatShareAChoiceWithoutAPeriodAndWordsThatAreNone) {
  for (const char* line : {R"("indexer_types": ["shared", "full", "full", "shared"])", R"("index_topk_freq": 2)",
                           R"("index_topk_pattern": "FSFS")", R"("rope_interleave": false)",
                           R"("mlp_layer_types": ["dense", "sprase", "sparse", "sparse"])",
                           R"("mlp_layer_types": [{"a": 1}, "sparse", "sparse", "sparse"])"})
    EXPECT_NE(refused(small_glm(std::string(", ") + line), "config.json").find("E0111"), std::string::npos) << line;
  EXPECT_NE(refused(small_glm(R"(, "indexer_types": ["full", "half", "full", "half"])"), "config.json"), "(accepted)");
  for (const char* line : {R"("indexer_types": ["full", "full", "full", "full"])", R"("rope_interleave": true)",
                           R"("indexer_types": ["full", "shared", "full", "shared"])",
                           R"("mlp_layer_types": ["dense", "sparse", "sparse", "sparse"])"})
    EXPECT_EQ(refused(small_glm(std::string(", ") + line), "config.json"), "(accepted)") << line;
}

TEST(HuggingFace, OfDeepSeeksRoutingHasTheClassesDefaults) {
  const Model glm5 = parse_model(small_glm(""), "config.json").value();
  EXPECT_EQ(glm5.indexer.heads, 32);
  EXPECT_EQ(glm5.experts.shared, 32);
  EXPECT_EQ(glm5.experts.first_dense, 3);
  const Model lite = parse_model(small_glm("", "glm4_moe_lite"), "config.json").value();
  EXPECT_EQ(lite.experts.shared, 32);
  EXPECT_EQ(lite.experts.first_dense, 1);
  EXPECT_EQ(parse_model(small_glm("", "deepseek_v2"), "config.json").value().experts.shared, 0);
}

TEST(HuggingFace, ScoresOfEveryLatentAttentionHaveYarnsWeight) {
  const std::string yarn = R"(, "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1,
    "original_max_position_embeddings": 128})";
  for (const char* type : {"deepseek_v3", "glm4_moe_lite", "glm_moe_dsa"})
    EXPECT_EQ(parse_model(small_glm(yarn, type), "config.json").value().rope_scaling.score_weight, 1) << type;
}

TEST(HuggingFace, ReportsEveryMissingField) {
  const std::string text = refused("{\"model_type\": \"gpt2\", \"n_embd\": 768}\n");
  for (const char* key : {"n_layer", "n_head", "n_positions", "vocab_size"}) {
    EXPECT_NE(text.find("key `" + std::string(key) + "` is missing"), std::string::npos) << text;
  }
}

TEST(OwnForm, TakesDefaultsFromTheFamily) {
  const Model m = read(
      "family: llama\nlayers: 2\nhidden: 64\nheads: 4\nkv_heads: 2\nffn_hidden: 172\nvocab: 100\nmax_sequence: 32\n",
      "dir/mine.yaml");
  EXPECT_EQ(m.name, "mine");
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.normalisation, Normalisation::rms_norm);
  EXPECT_EQ(m.activation, Activation::swiglu);
  EXPECT_EQ(m.positions, Positions::rope);
  EXPECT_FALSE(m.bias);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_TRUE(m.causal);
}

TEST(OwnForm, ABertHasItsHeadsAndTheExactGelu) {
  const std::string text = "family: bert\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nmax_sequence: 32\n";
  const Model m = read(text);
  EXPECT_EQ(m.gelu, Gelu::erf);
  EXPECT_EQ(m.masked_fraction, 0.15);
  EXPECT_TRUE(m.next_sentence);
  EXPECT_EQ(read("family: gpt\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nmax_sequence: 32\n").gelu, Gelu::tanh);
  EXPECT_FALSE(read(text + "next_sentence: false\n").next_sentence);
  EXPECT_EQ(read(text + "gelu: tanh\n").gelu, Gelu::tanh);
  const Model before = read(text + "pre_norm: true\n");
  EXPECT_EQ(before.masked_fraction, 0) << "there is no such head where norms come first";
  EXPECT_FALSE(before.next_sentence);
}

TEST(OwnForm, RefusesHeadsThatTheModelCannotHave) {
  const std::string text = "layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nmax_sequence: 32\n";
  EXPECT_NE(refused("family: gpt\nmasked_fraction: 0.15\n" + text).find("E0112"), std::string::npos);
  EXPECT_NE(refused("family: bert\npre_norm: true\nmasked_fraction: 0.15\n" + text).find("E0112"), std::string::npos);
  EXPECT_NE(refused("family: bert\nmasked_fraction: 0\nnext_sentence: true\n" + text).find("E0112"), std::string::npos);
  EXPECT_NE(refused("family: bert\ngelu: sigmoid\n" + text).find("E0106"), std::string::npos);
}

TEST(OwnForm, WritesWhatItReads) {
  for (const char* name : {"gpt2-1558m", "gpt3-175b", "bert-large", "llama2-7b", "tiny-gpt", "tiny-bert"}) {
    const Model m = read(catalogue(name));
    EXPECT_EQ(read(write_model(m)), m) << write_model(m);
    EXPECT_EQ(write_model(read(write_model(m))), write_model(m));
  }
  Model odd = read(catalogue("tiny-gpt"));
  odd.name = "a: \"b\" # c";
  odd.sources = {"- x", "é # y", "'"};
  odd.norm_epsilon = 1.0 / 3;
  EXPECT_EQ(read(write_model(odd)), odd);
}

TEST(OwnForm, ReadsIndentedWithinAnotherFile) {
  const Model m = read(catalogue("llama2-7b"));
  const auto inner = base::read_document<Model>("model:\n" + write_model(m, 2), "plan.yaml",
                                                [](const base::Cursor& root) { return read_model(root.at("model")); });
  ASSERT_TRUE(inner.has_value()) << base::render(inner.error(), false);
  EXPECT_EQ(*inner, m);
}

TEST(OwnForm, ReportsAllErrorsAtOnce) {
  const std::string text =
      "family: gtp\n"
      "layers: 0\n"
      "hiden: 768\n"
      "heads: 12.5\n"
      "vocab: 50_257\n"
      "max_sequence: 1024\n"
      "causal: yes\n";
  EXPECT_EQ(refused(text), R"(error[E0106]: `family` must be one of )" + families_in_order() + R"(, found `gtp`
 --> model.yaml:1:9
  |
1 | family: gtp
  |         ^^^
  |
  = help: did you mean `gpt`?

error[E0105]: `layers` must be from 1 to 10000, found `0`
 --> model.yaml:2:9
  |
2 | layers: 0
  |         ^

error[E0102]: key `hidden` is missing
 --> model.yaml:3:1
  |
3 | hiden: 768
  | ^^^^^
  |
  = help: `hiden` looks like it; write `hidden`

error[E0105]: `heads` must be a whole number, found `12.5`
 --> model.yaml:4:8
  |
4 | heads: 12.5
  |        ^^^^
  |
  = help: write a whole number without point or exponent

error[E0105]: `vocab` must be a whole number, found `50_257`
 --> model.yaml:5:8
  |
5 | vocab: 50_257
  |        ^^^^^^
  |
  = help: write the digits without separators

error[E0105]: `causal` must be true or false, found `yes`
 --> model.yaml:7:9
  |
7 | causal: yes
  |         ^^^
)");
}

TEST(OwnForm, SaysOfAnotherKindOfModelThatAlone) {
  EXPECT_EQ(refused("family: resnet\nstages: [{blocks: 3}]\n"),
            "error[E0106]: models of the family `resnet` are not supported yet\n"
            " --> model.yaml:1:9\n"
            "  |\n"
            "1 | family: resnet\n"
            "  |         ^^^^^^\n"
            "  |\n"
            "  = help: families are " +
                families_in_order() +
                ": "
                "transformers with one stack, and recommendation models; not encoders with decoders\n");
}

TEST(OwnForm, LeavesOutASourceThatSaysNothing) {
  const Model model = read(
      "family: gpt\nname: x\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 99\nmax_sequence: 64\nsources:\n"
      "  - # nothing\n  - a paper\n",
      "model.yaml");
  EXPECT_EQ(model.sources, std::vector<std::string>{"a paper"});
}

TEST(OwnForm, RefusesNumbersThatDoNotFitEachOther) {
  const std::string begin = "family: gpt\nlayers: 2\nhidden: 64\nvocab: 9\nmax_sequence: 8\n";
  EXPECT_EQ(refused(begin + "heads: 7\n"),
            "error[E0112]: hidden 64 does not divide by 7 heads\n"
            " --> model.yaml:6:8\n"
            "  |\n"
            "6 | heads: 7\n"
            "  |        ^\n"
            "  |\n"
            "  = help: give head_dim, or another number of heads\n");
  EXPECT_EQ(read(begin + "heads: 7\nhead_dim: 10\n").head_dim, 10);
  EXPECT_NE(refused(begin + "heads: 8\nkv_heads: 3\n").find("8 heads do not divide by 3 key/value heads"),
            std::string::npos);
  EXPECT_NE(refused(begin + "heads: 8\nhead_dim: 5\npositions: rope\n").find("even head width"), std::string::npos);
  EXPECT_NE(refused(begin + "heads: 8\nhead_dim: 1000000\n").find("E0112"), std::string::npos);
}

TEST(OwnForm, RefusesEmptyAndForeignFiles) {
  EXPECT_NE(refused("").find("the file is empty"), std::string::npos);
  EXPECT_NE(refused("[1, 2]").find("must be a map of keys"), std::string::npos);
  EXPECT_NE(refused("just text").find("must be a map of keys"), std::string::npos);
  EXPECT_NE(refused("{}").find("key `family` is missing"), std::string::npos);
}

TEST(OwnForm, SaysInWhatTwoModelsDifferFirst) {
  const Model eight = read(catalogue("tiny-moe"));
  Model other = eight;
  EXPECT_EQ(first_difference(eight, other), "");
  other.experts.count = 16, other.experts.hidden = 64;
  EXPECT_EQ(first_difference(other, eight), "experts.count 16, not 8");
  other = eight;
  other.experts.shared = 32;
  EXPECT_EQ(first_difference(eight, other), "experts.shared unset, not 32");
  other.layers = 2;
  EXPECT_EQ(first_difference(other, eight), "layers 2, not 4");
}

// What is written for weights that others read, read again, is the same model.
TEST(HuggingFace, IsWrittenAsItIsRead) {
  for (const char* name : {"gpt2-124m", "llama2-7b", "bert-large"}) {
    const Model model = read(catalogue(name));
    const auto text = write_hugging_face(model);
    ASSERT_TRUE(text) << name;
    Model again = read(*text, "config.json");
    again.sources = model.sources;
    EXPECT_EQ(again, model) << *text;
  }
  Model odd = read(catalogue("gpt2-124m"));
  odd.positions = Positions::rope;
  EXPECT_FALSE(write_hugging_face(odd));
}

}  // namespace read_test
}  // namespace orrery::models
