// Mixtures of experts as models: from their public configurations and from orrery's own form, with the parameters that
// their papers and files have, all of them and those that a token meets; and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "models/layers/counts.h"
#include "models/layers/expand.h"
#include "models/read/hugging_face.h"
#include "models/read/read.h"
#include "tests/models/published_mixtures.h"

namespace orrery::models {
namespace experts_test {

using testing::Configuration;
using testing::configurations;

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
    if (model.family == Family::deepseek_v4) {
      EXPECT_FALSE(text) << "no weights of it are ever made";
      continue;
    }
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

// GLM-5.2: three of four layers read what the indexer of a layer before chose, and have none.
TEST(MixturesOfExperts, MayShareIndexersAmongLayers) {
  const auto with = [](const Configuration& one, const std::string& more) {
    std::string text = one.config;
    return text.insert(text.find("\"index_topk\""), more + ", ");
  };
  const auto types = [](std::int64_t layers, const std::function<bool(std::int64_t)>& chooses) {
    std::string all;
    for (std::int64_t i = 0; i < layers; ++i)
      all += std::string(i > 0 ? ", " : "") + (chooses(i) ? "\"full\"" : "\"shared\"");
    return "\"indexer_types\": [" + all + "]";
  };
  int seen = 0;
  for (const Configuration& one : configurations()) {
    if (std::string(one.config).find("\"index_topk\"") == std::string::npos) continue;
    if (std::string(one.config).find("deepseek_v4") != std::string::npos) continue;  // each of its layers has its own
    ++seen;
    const Model all = model_of(one.config);
    const auto glm_5_2 = [](std::int64_t i) { return i < 3 || i % 4 == 2; };
    const Model m = model_of(with(one, "\"index_topk_freq\": 4, \"index_skip_topk_offset\": 3"));
    EXPECT_EQ(nameless(model_of(with(one, types(all.layers, glm_5_2)))), nameless(m));
    EXPECT_EQ(model_of(write_model(m), "model.yaml"), m) << write_model(m);
    const auto written = write_hugging_face(m);
    ASSERT_TRUE(written);
    EXPECT_EQ(nameless(model_of(*written)).indexer, m.indexer);
    std::int64_t without = 0;
    for (std::int64_t i = 0; i < m.layers; ++i) without += glm_5_2(i) ? 0 : 1;
    const std::int64_t c = m.hidden,
                       own = m.latent.q_rank * m.indexer.heads * 128 + c * 128 + 2 * 128 + c * m.indexer.heads;
    EXPECT_EQ(parameters(all) - parameters(m), without * own);
    // Attention reads as few tokens in every layer; only those that choose score all of them.
    constexpr std::int64_t kTokens = 8192;
    const double scores = 2.0 * static_cast<double>(kTokens * m.indexer.heads * 128);
    EXPECT_NEAR(
        (flops_per_token_forward(all, kTokens) - flops_per_token_forward(m, kTokens)) / static_cast<double>(without),
        scores + 2.0 * static_cast<double>(own - 2 * 128), 1);
    for (const std::string& wrong :
         {std::string("\"index_topk_freq\": 4"),
          types(all.layers, [](std::int64_t i) { return i == 0 || i == 4 || i == 5; }),
          std::string(R"("indexer_types": ["full"])"), std::string(R"("index_topk_pattern": "FFFS")"),
          types(all.layers, [](std::int64_t i) { return i > 0; })})
      EXPECT_FALSE(parse_model(with(one, wrong), "config.json")) << wrong;
  }
  EXPECT_EQ(seen, 2);
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
               "num_key_value_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
               "moe_intermediate_size": 32,
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
