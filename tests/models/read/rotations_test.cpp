// What files say of rotations and positions in more than one place, or in older words.
#include <gtest/gtest.h>

#include <string>

#include "models/layers/counts.h"
#include "models/read/original.h"
#include "models/read/read.h"

namespace orrery::models {
namespace rotations_test {

Model read(const std::string& text) {
  const auto model = parse_model(text, "config.json");
  EXPECT_TRUE(model.has_value()) << text << base::render(model.error(), false);
  return model.has_value() ? *model : Model();
}

std::string small(const std::string& family, const std::string& more) {
  return "{\"model_type\": \"" + family +
         R"(", "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 64,
      "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99, )" +
         more + "}";
}

// transformers 5 reads what it calls rope_parameters under the older name too.
TEST(Rotations, HaveTheirBaseWithinTheirScaling) {
  const auto base = [](const std::string& more) { return read(small("llama", more)).rope_theta; };
  EXPECT_EQ(base(R"("rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 1e6})"), 1e6);
  EXPECT_EQ(base(R"("rope_theta": 5000, "rope_scaling": {"rope_type": "linear", "factor": 2})"), 5000);
  EXPECT_EQ(base(R"("rope_scaling": {"rope_type": "linear", "factor": 2})"), 10000);
}

// Ministral 3's yarn.
TEST(Rotations, BesideScalesOfQueriesByTheirPositionsAreAPartOfTheFilesAlone) {
  const auto left_out = [](const std::string& beta) {
    return !differences(read(small("ministral3", R"("rope_parameters": {"type": "yarn", "rope_theta": 1e6, "factor": 16,
      "original_max_position_embeddings": 16, "llama_4_scaling_beta": )" +
                                                     beta + "}")))
                .empty();
  };
  EXPECT_FALSE(left_out("0"));
  EXPECT_TRUE(left_out("0.1"));
}

TEST(Rotations, OfPhisFirstFilesAreCountedInColumns) {
  const Model m = read(R"({"model_type": "phi-msft", "activation_function": "gelu_new", "n_embd": 2560, "n_head": 32,
      "n_head_kv": null, "n_inner": null, "n_layer": 32, "n_positions": 2048, "rotary_dim": 32, "vocab_size": 51200})");
  EXPECT_EQ(m.family, Family::phi);
  EXPECT_EQ(parameters(m), 2'779'683'840);
  EXPECT_EQ(m.rotary_share, 0.4);
  EXPECT_FALSE(differences(m).empty()) << "weights under the first class's names are not read";
}

}  // namespace rotations_test
}  // namespace orrery::models
