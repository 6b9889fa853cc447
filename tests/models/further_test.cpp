// The module that predicts a token further (multi-token prediction): its parameters and operators; what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "models/layers/counts.h"
#include "models/layers/expand.h"
#include "models/read/read.h"

namespace orrery::models {
namespace further_test {

constexpr const char* kSmall =
    "family: llama\nname: small\nlayers: 2\nhidden: 32\nheads: 4\nffn_hidden: 48\nvocab: 64\nmax_sequence: 16\n";

Model small(const std::string& more) {
  const auto model = parse_model(kSmall + more, "small.yaml");
  EXPECT_TRUE(model.has_value()) << base::render(model.error(), false);
  return model.value_or(Model{});
}

std::string message_of_small(const std::string& text) {
  const auto model = parse_model(text, "small.yaml");
  return model ? "(accepted)" : base::render(model.error(), false);
}

// DeepSeek-V3's README: 671 billion, and 14 for the module, with copies of the table and of the head, which it shares.
// Its files' index has 684,489,845,504 parameters, 15,104 of them biases of the choice.
TEST(FurtherPrediction, HasThePublishedParametersOfDeepSeekV3) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/deepseek-v3.yaml");
  const auto model = parse_model(std::string(std::istreambuf_iterator<char>(in), {}), "deepseek-v3.yaml");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  constexpr std::int64_t kHidden = 7168, kTable = 129'280 * kHidden;
  EXPECT_EQ(parameters(*model), 671'026'404'352);
  EXPECT_EQ(parameters_further(*model), parameters_of_block(*model, 60) + 2 * kHidden * kHidden + 3 * kHidden);
  EXPECT_EQ(parameters(*model) + parameters_further(*model) + 2 * kTable, 684'489'845'504 - 15'104);
}

TEST(FurtherPrediction, IsReadAndWritten) {
  const Model model = small("further_prediction: {modules: 1, weight: 0.1}\n");
  EXPECT_EQ(model.further.modules, 1);
  EXPECT_DOUBLE_EQ(model.further.weight, 0.1);
  EXPECT_EQ(small("").further, FurtherPrediction{});
  const auto again = parse_model(write_model(model), "small.yaml");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, model);
}

TEST(FurtherPrediction, OfTwoModulesOrOfBertIsRefused) {
  EXPECT_NE(message_of_small(kSmall + std::string("further_prediction: {modules: 2}\n")).find("small.yaml:9:31"),
            std::string::npos)
      << message_of_small(kSmall + std::string("further_prediction: {modules: 2}\n"));
  EXPECT_NE(message_of_small("family: bert\nname: b\nlayers: 2\nhidden: 32\nheads: 4\nvocab: 64\nmax_sequence: 16\n"
                             "further_prediction: {modules: 1}\n")
                .find("E0112"),
            std::string::npos);
}

// Forward's share over the model's: a block of three, another head, and the product of two widths.
TEST(FurtherPrediction, TakesABlockAndAHeadMore) {
  const Model plain = small(""), model = small("further_prediction: {modules: 1}\n");
  Model three = plain;
  three.layers = 3;
  const double block = flops_per_token_forward(three, 16) - flops_per_token_forward(plain, 16);
  const double head = 2.0 * 64 * 32, joins = 2.0 * 2 * 32 * 32;
  EXPECT_DOUBLE_EQ(flops_per_token_forward(model, 16) - flops_per_token_forward(plain, 16), block + head + joins);
}

TEST(FurtherPrediction, WritesTheGradientOfEachOfItsParameters) {
  for (const std::int64_t tensor : {1, 2}) {
    ExpandOptions options;
    options.batch = 2, options.sequence = 16, options.tensor = tensor, options.sequence_parallel = tensor > 1;
    const LayerProgram head = expand(small("further_prediction: {modules: 1}\n"), LayerKind::head, -1, options);
    std::set<TensorId> written, read;
    for (const std::vector<Part>* pass : {&head.forward, &head.backward})
      for (const Part& part : *pass) {
        if (part.is_communication()) written.insert(part.tensor);
        for (const Op& op : part.ops) {
          for (const int t : op.in)
            if (t >= 0) read.insert(tensor_of(t));
          for (const int t : op.out)
            if (t >= 0) written.insert(tensor_of(t));
        }
      }
    int shared = 0;
    std::set<std::string> names;
    for (const TensorId t : head.tensors.keys()) {
      const Tensor& one = head.tensors[t];
      EXPECT_TRUE(names.insert(one.name).second) << one.name << " stands twice";
      const bool parameter = one.role == TensorRole::parameter, gradient = one.role == TensorRole::gradient;
      EXPECT_TRUE(!parameter || read.contains(t)) << one.name;
      EXPECT_TRUE(!gradient || written.contains(t)) << one.name;
      shared += one.role == TensorRole::parameter && one.shared ? 1 : 0;
    }
    EXPECT_EQ(shared, 1) << "the token table";
    EXPECT_TRUE(written.contains(head.dx));
    EXPECT_FALSE(head.evaluation.empty()) << "evaluation is of the next token alone";
  }
}

}  // namespace further_test
}  // namespace orrery::models
