/// Rates of rotary positions, by the formulas of those who scale them.
#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "models/read/hugging_face.h"
#include "models/read/read.h"

namespace orrery::models {
namespace rope_test {

constexpr double kPi = std::numbers::pi;

TEST(RopeRates, AreRoFormersWithoutScaling) {
  const std::vector<double> rates = rope_rates(10000, {}, 8);
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_EQ(rates[0], 1);
  EXPECT_NEAR(rates[1], 0.1, 1e-12);
  EXPECT_NEAR(rates[3], 1e-3, 1e-12);
}

TEST(RopeRates, OfLinearScalingAreAllDividedByTheFactor) {
  const std::vector<double> plain = rope_rates(10000, {}, 64);
  const std::vector<double> slow = rope_rates(10000, {.kind = RopeKind::linear, .factor = 4}, 64);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(slow[i], plain[i] / 4);
}

// Llama 3.1: 500000, factor 8, low 1, high 4, 8192 tokens, heads of 128. Pair 29 turns 8192 r / 2 pi = 3.41 times.
TEST(RopeRates, OfLlama3KeepFastPairsAndDivideSlowOnes) {
  const RopeScaling scaling{.kind = RopeKind::llama3, .factor = 8, .original = 8192, .low = 1, .high = 4};
  const std::vector<double> plain = rope_rates(500000, {}, 128), scaled = rope_rates(500000, scaling, 128);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double length = 2 * kPi / plain[i];
    if (length < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (length > 8192.0) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
    } else {
      const double smooth = (8192.0 / length - 1) / (4.0 - 1);
      EXPECT_NEAR(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-18);
    }
  }
  EXPECT_NEAR(8192 * plain[29] / (2 * kPi), 3.41, 0.02);
  EXPECT_GT(scaled[29], plain[29] / 8);
  EXPECT_LT(scaled[29], plain[29]);
}

// Llama 4 Scout: both bounds are one turn, which 8,192 tokens make between pairs 34 and 35.
TEST(RopeRates, OfLlama3MayHaveOneBound) {
  const auto model = parse_model(R"({"model_type": "llama4_text", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99, "head_dim": 128,
      "max_position_embeddings": 10485760, "num_local_experts": 8, "num_experts_per_tok": 1, "rope_theta": 500000.0,
      "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
                                 "config.json");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  const std::vector<double> plain = rope_rates(500000, {}, 128), scaled = rope_rates(500000, model->rope_scaling, 128);
  EXPECT_GT(8192 * plain[34] / (2 * kPi), 1);
  EXPECT_LT(8192 * plain[35] / (2 * kPi), 1);
  for (std::size_t i = 0; i <= 34; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (std::size_t i = 35; i < 64; ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 16) << i;
  RopeScaling at_the_bound = model->rope_scaling;  // the fastest pair turns exactly as often as the bound says
  at_the_bound.low = at_the_bound.high = 8192 / (2 * kPi);
  EXPECT_EQ(rope_rates(500000, at_the_bound, 128)[0], 1);
}

// Kimi K2: both bounds are one turn, which 4,096 tokens make between pairs 19 and 20; the ramp is one pair wide.
TEST(RopeRates, OfYarnMayHaveOneBound) {
  const auto model = parse_model(R"({"model_type": "kimi_k2", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99, "max_position_embeddings": 131072,
      "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "kv_lora_rank": 16,
      "first_k_dense_replace": 1, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "rope_theta": 50000.0, "rope_scaling": {
      "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}})",
                                 "config.json");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  const std::vector<double> plain = rope_rates(50000, {}, 64), scaled = rope_rates(50000, model->rope_scaling, 64);
  EXPECT_GT(4096 * plain[19] / (2 * kPi), 1);
  EXPECT_LT(4096 * plain[20] / (2 * kPi), 1);
  for (std::size_t i = 0; i <= 19; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (std::size_t i = 20; i < 32; ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 32) << i;
}

// DeepSeek-V3: 10000, factor 40, 4096 tokens, 64 columns: pairs up to 10 keep their rate, those from 23 on are divided.
TEST(RopeRates, OfYarnGoFromWholeToDividedBetweenTwoPairs) {
  const RopeScaling scaling{.kind = RopeKind::yarn, .factor = 40, .original = 4096, .low = 1, .high = 32};
  const std::vector<double> plain = rope_rates(10000, {}, 64), scaled = rope_rates(10000, scaling, 64);
  for (std::size_t i = 0; i <= 10; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (std::size_t i = 23; i < 32; ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 40) << i;
  for (std::size_t i = 11; i < 23; ++i) {
    const double ramp = (static_cast<double>(i) - 10) / (23 - 10);
    EXPECT_NEAR(scaled[i], plain[i] / 40 * ramp + plain[i] * (1 - ramp), 1e-15) << i;
  }
  EXPECT_NEAR(yarn_attention(40), 0.1 * std::log(40.0) + 1, 1e-15);
  EXPECT_EQ(yarn_attention(0.5), 1);
  EXPECT_NEAR((RopeScaling{.kind = RopeKind::yarn, .factor = 40, .score_weight = 1}.scores()), 1.8738, 1e-4);
}

/// A Phi-4 mini of two layers: 96 of a head's 128 columns rotate, so there are 48 pairs.
std::string phi(const std::string& scaling) {
  return R"({"model_type": "phi3", "hidden_size": 512, "intermediate_size": 128, "max_position_embeddings": 131072,
      "num_attention_heads": 4, "num_hidden_layers": 2, "original_max_position_embeddings": 4096,
      "partial_rotary_factor": 0.75, "rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": 99,
      "rope_scaling": {)" +
         scaling + "}}";
}
/// "short_factor": 1.0 for all, "long_factor": 1.0, 1.5, 2.0 ...
std::string factors(int pairs) {
  std::string of_short, of_long;
  for (int i = 0; i < pairs; ++i) {
    of_short += std::string(i > 0 ? ", " : "") + "1.0";
    of_long += (i > 0 ? ", " : "") + std::to_string(1 + 0.5 * i);
  }
  return "\"short_factor\": [" + of_short + "], \"long_factor\": [" + of_long + "]";
}

// Phi-3's published code: a sequence beyond the first length has the other list; attention's factor, for 32 times as
// many tokens as 4,096, is sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5/12), whatever the sequence.
TEST(RopeRates, OfLongropeAreDividedPairByPairAsTheSequenceIsLong) {
  const auto model = parse_model(phi("\"type\": \"longrope\", " + factors(48)), "config.json");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  const std::vector<double> plain = rope_rates(10000, {}, 96);
  EXPECT_EQ(rope_rates(10000, model->rope_scaling.within(4096), 96), plain);
  const std::vector<double> slow = rope_rates(10000, model->rope_scaling.within(4097), 96);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_DOUBLE_EQ(slow[i], plain[i] / (1 + 0.5 * static_cast<double>(i))) << i;
  for (const std::int64_t tokens : {4096, 4097})
    EXPECT_NEAR(model->rope_scaling.within(tokens).attention, std::sqrt(17.0 / 12), 1e-12);
  EXPECT_EQ(longrope_attention(1, 4096), 1);
}

TEST(RopeScaling, OfLongropeHasItsFirstNameAndPhimoesTwoFactorsToo) {
  const auto old = parse_model(phi("\"type\": \"su\", " + factors(48)), "config.json");
  const auto now = parse_model(phi("\"rope_type\": \"longrope\", " + factors(48)), "config.json");
  ASSERT_TRUE(old && now);
  EXPECT_EQ(old->rope_scaling, now->rope_scaling);
  const auto two = parse_model(
      phi("\"type\": \"longrope\", \"short_mscale\": 1.24, \"long_mscale\": 1.25, " + factors(48)), "config.json");
  ASSERT_TRUE(two) << base::render(two.error(), false);
  EXPECT_EQ(two->rope_scaling.within(4096).attention, 1.24);
  EXPECT_EQ(two->rope_scaling.within(5000).attention, 1.25);
  for (const auto& one : {now, two}) {
    const auto config = write_hugging_face(*one);
    ASSERT_TRUE(config) << base::render(config.error(), false);
    EXPECT_EQ(parse_model(*config, "config.json")->rope_scaling, one->rope_scaling) << *config;
    EXPECT_EQ(parse_model(write_model(*one), "m.yaml")->rope_scaling, one->rope_scaling) << write_model(*one);
  }
}

TEST(RopeScaling, OfLongropeNeedsADivisorForEachPair) {
  for (const int pairs : {47, 64}) {
    const auto model = parse_model(phi("\"type\": \"longrope\", " + factors(pairs)), "config.json");
    ASSERT_FALSE(model);
    EXPECT_NE(base::render(model.error(), false).find("48 pairs"), std::string::npos);
  }
  EXPECT_FALSE(parse_model(phi("\"type\": \"longrope\", \"factor\": 32"), "config.json")) << "no lists";
}

constexpr const char* kModel = R"(family: llama
layers: 2
hidden: 64
heads: 4
ffn_hidden: 128
vocab: 256
max_sequence: 128
)";

TEST(RopeScaling, IsReadAndWritten) {
  for (const char* text :
       {"{type: linear, factor: 4}",
        "{type: longrope, original: 64, attention: 1.25, long_attention: 1.5, divisors: [1, 1, 1, 1, 1, 1, 1, 2], "
        "long_divisors: [1, 2, 3, 4, 5, 6, 7, 8.5]}",
        "{type: llama3, factor: 8, original: 8192, low: 1, high: 4}",
        "{type: llama3, factor: 16, original: 8192, low: 1, high: 1}",
        "{type: yarn, factor: 40, original: 4096, low: 1, high: 32, whole_pairs: false, attention: 1.25, "
        "score_weight: 0.7}"}) {
    const auto model = parse_model(std::string(kModel) + "rope_scaling: " + text + "\n", "m.yaml");
    ASSERT_TRUE(model.has_value()) << base::render(model.error(), false);
    EXPECT_EQ(rope_scaling_text(model->rope_scaling), text);
    const auto again = parse_model(write_model(*model), "again.yaml");
    ASSERT_TRUE(again.has_value()) << base::render(again.error(), false);
    EXPECT_EQ(again->rope_scaling, model->rope_scaling);
    const auto config = write_hugging_face(*model);
    ASSERT_EQ(config.has_value(), model->rope_scaling.score_weight == 0) << "only DeepSeek's classes weigh scores";
    if (!config) continue;
    EXPECT_EQ(parse_model(*config, "config.json")->rope_scaling, model->rope_scaling);
  }
}

TEST(RopeScaling, RefusesWhatNoModelHas) {
  for (const char* text : {"{type: cubic, factor: 4}", "{type: linear}", "{type: llama3, factor: 8}",
                           "{type: llama3, factor: 8, original: 8192, low: 4, high: 3.9}", "{type: linear, factor: 0}",
                           "{type: longrope, original: 64, divisors: [1, 1], long_divisors: [1, 1]}",
                           "{type: longrope, original: 64, divisors: [1, 1, 1, 1, 1, 1, 1, 0], long_divisors: [1, 1, "
                           "1, 1, 1, 1, 1, 1]}"})
    EXPECT_FALSE(parse_model(std::string(kModel) + "rope_scaling: " + text + "\n", "m.yaml").has_value()) << text;
}

}  // namespace rope_test
}  // namespace orrery::models
