// LoRA in a model: read, written, counted.
#include "models/lora.h"

#include <gtest/gtest.h>

#include "models/layers/counts.h"
#include "models/read/read.h"

namespace orrery::models {
namespace lora_test {

const std::string kLlama =
    "family: llama\nname: small\nlayers: 2\nhidden: 64\nheads: 4\nkv_heads: 2\nffn_hidden: 160\nvocab: 1000\n"
    "max_sequence: 128\n";

Model with(const std::string& lora) {
  const auto model = parse_model(kLlama + "lora: " + lora + "\n", "small.yaml");
  EXPECT_TRUE(model) << base::render(model.error(), false);
  return model ? *model : Model{};
}

std::string refused(const std::string& lora) {
  const auto model = parse_model(kLlama + "lora: " + lora + "\n", "small.yaml");
  return model ? "" : model.error().front().code + " " + model.error().front().message;
}

TEST(Lora, IsWrittenAsItIsRead) {
  const Model m = with("{rank: 8, alpha: 16, targets: [qkv, down]}");
  EXPECT_EQ(m.lora, (Lora{8, 16, true, false, false, true}));
  EXPECT_EQ(m.lora.scale(), 2);
  EXPECT_EQ(*parse_model(write_model(m), "again.yaml"), m);
  EXPECT_EQ(with("{rank: 8}").lora, (Lora{8, 8, true, true, true, true})) << "all products, and a scale of one";
}

TEST(Lora, UnderstandsTheNamesOfOthers) {
  EXPECT_EQ(with("{rank: 8, targets: [q_proj, k_proj, v_proj, o_proj]}").lora, (Lora{8, 8, true, true, false, false}));
  EXPECT_EQ(with("{rank: 8, targets: [linear_qkv, linear_fc1]}").lora, (Lora{8, 8, true, false, true, false}));
  EXPECT_EQ(with("{rank: 8, targets: [gate_proj, up_proj, down_proj]}").lora, (Lora{8, 8, false, false, true, true}));
}

TEST(Lora, RefusesPartsOfWhatIsOneProduct) {
  EXPECT_EQ(refused("{rank: 8, targets: [q_proj, v_proj]}"), "E0112 q, k and v are one product here, with one adapter");
  EXPECT_EQ(refused("{rank: 8, targets: [up_proj]}"), "E0112 gate and up are one product here, with one adapter");
  EXPECT_EQ(refused("{rank: 8, targets: []}"), "E0112 adapters on no product train nothing");
  EXPECT_EQ(refused("{rank: 0}").substr(0, 5), "E0105");
  EXPECT_EQ(refused("{alpha: 2}").substr(0, 5), "E0102");
  EXPECT_EQ(refused("{rank: 8, targets: [head]}").substr(0, 5), "E0106");
}

TEST(Lora, CountsWhatTrains) {
  const Model plain = *parse_model(kLlama, "small.yaml"), adapted = with("{rank: 8}");
  EXPECT_EQ(parameters_trained(plain), parameters(plain));
  // A: hidden, hidden, hidden, ffn in; B: q of 64 with k and v of 32, hidden, gate and up of 160 each, hidden out.
  const std::int64_t in = 64 + 64 + 64 + 160, out = (64 + 32 + 32) + 64 + 320 + 64;
  EXPECT_EQ(parameters_trained(adapted), 2 * 8 * (in + out));
  EXPECT_EQ(parameters(adapted), parameters(plain) + parameters_trained(adapted));
}

// Weights that stay have no gradient: their products count twice, not three times.
TEST(Lora, SavesTheGradientsOfTheWeights) {
  const Model plain = *parse_model(kLlama, "small.yaml"), adapted = with("{rank: 1, targets: [proj]}");
  const double attention = 2.0 * 2 * 2 * 64 * 128;  // two products of 64 columns with 128 keys, in two layers, a token
  const double products = flops_per_token_forward(plain, 128) - attention;
  const double narrow = 2.0 * 2 * (64 + 64);  // of each layer
  EXPECT_NEAR(flops_per_step(adapted, 1, 128), 128 * (2 * products + 3 * attention + 3 * narrow), 1);
}

}  // namespace lora_test
}  // namespace orrery::models
