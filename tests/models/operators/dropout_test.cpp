/// Dropout in a model: how its rates are read and written, which operators draw, and that nothing is there without.
#include "models/operators/dropout.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/layers/expand.h"
#include "models/read/hugging_face.h"
#include "models/read/read.h"

namespace orrery::models {
namespace dropout_test {

const std::string kTiny = "name: tiny\nfamily: gpt\nlayers: 2\nhidden: 32\nheads: 4\nvocab: 64\nmax_sequence: 16\n";

Model read(const std::string& more) {
  const auto m = parse_model(kTiny + more, "tiny.yaml");
  EXPECT_TRUE(m) << base::render(m.error(), false);
  return m ? *m : Model{};
}

TEST(DropoutRates, AreOneForAllPlacesOrOneEach) {
  EXPECT_FALSE(read("").dropout.any());
  EXPECT_EQ(read("dropout: 0.1\n").dropout, (Dropout{0.1, 0.1, 0.1}));
  EXPECT_EQ(read("dropout: {attention: 0.25, residual: 0.5}\n").dropout, (Dropout{0, 0.25, 0.5}));
  for (const char* wrong : {"dropout: 1\n", "dropout: -0.1\n", "dropout: {hidden: 0.1}\n", "dropout: none\n"})
    EXPECT_FALSE(parse_model(kTiny + wrong, "tiny.yaml")) << wrong;
}

TEST(DropoutRates, AreWrittenAsTheyAreRead) {
  const Model m = read("dropout: {embedding: 0.05, attention: 0.25}\nactivation: relu\n");
  const auto again = parse_model(write_model(m), "tiny.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, m);
}

Model theirs(const std::string& text) {
  const auto m = parse_model(text, "config.json");
  EXPECT_TRUE(m) << base::render(m.error(), false);
  return m ? *m : Model{};
}

TEST(DropoutRates, HaveHuggingFacesNames) {
  const std::string gpt =
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 16, "vocab_size": 64)";
  EXPECT_FALSE(theirs(gpt + "}").dropout.any()) << "a file that is silent";
  const Model one = theirs(gpt + R"(, "embd_pdrop": 0.1, "attn_pdrop": 0.2, "resid_pdrop": 0.3,
                                   "activation_function": "relu"})");
  EXPECT_EQ(one.dropout, (Dropout{0.1, 0.2, 0.3}));
  EXPECT_EQ(one.activation, Activation::relu);
  const Model bert = theirs(
      R"({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64,
          "intermediate_size": 64, "max_position_embeddings": 16, "hidden_dropout_prob": 0.1,
          "attention_probs_dropout_prob": 0.2})");
  EXPECT_EQ(bert.dropout, (Dropout{0.1, 0.2, 0.1}));
  const Model llama = theirs(
      R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64,
          "intermediate_size": 64, "max_position_embeddings": 16, "attention_dropout": 0.2})");
  EXPECT_EQ(llama.dropout, (Dropout{0, 0.2, 0}));
  for (const Model& m : {one, bert, llama}) {
    const auto written = write_hugging_face(m);
    ASSERT_TRUE(written) << base::render(written.error(), false);
    const Model again = theirs(*written);
    EXPECT_EQ(again.dropout, m.dropout);
    EXPECT_EQ(again.activation, m.activation);
  }
  Model other = llama;
  other.dropout.residual = 0.1;
  EXPECT_FALSE(write_hugging_face(other)) << "the class has no such rate";
}

std::vector<Op> ops_of(const Model& m, LayerKind kind, std::int64_t layer, const ExpandOptions& options) {
  const LayerProgram program = expand(m, kind, layer, options);
  std::vector<Op> out;
  for (const auto* parts : {&program.forward, &program.backward})
    for (const Part& part : *parts) out.insert(out.end(), part.ops.begin(), part.ops.end());
  return out;
}

TEST(DropoutOperators, DrawAtASiteOfTheirOwnAndTheSameForwardAndBackward) {
  Model m = read("dropout: 0.1\n");
  ExpandOptions options;
  options.batch = 2, options.sequence = 16;
  std::map<std::int32_t, std::set<OpKind>> kinds;
  for (const std::int64_t layer : {0, 1})
    for (const Op& op : ops_of(m, LayerKind::block, layer, options)) {
      if (op.dropout == 0) continue;
      EXPECT_DOUBLE_EQ(op.dropout, 0.1);
      kinds[op.site].insert(op.kind);
    }
  for (const Op& op : ops_of(m, LayerKind::embedding, -1, options))
    if (op.dropout > 0) kinds[op.site].insert(op.kind);
  ASSERT_EQ(kinds.size(), 7U);
  EXPECT_EQ(kinds.at(kEmbeddingSite), (std::set{OpKind::dropout}));
  for (const std::int64_t layer : {0, 1}) {
    EXPECT_EQ(kinds.at(dropout_site(layer, DropoutPlace::attention)),
              (std::set{OpKind::attention, OpKind::attention_grad}));
    for (const DropoutPlace place : {DropoutPlace::attention_branch, DropoutPlace::mlp_branch})
      EXPECT_EQ(kinds.at(dropout_site(layer, place)), (std::set{OpKind::add_bias, OpKind::dropout}));
  }
}

TEST(DropoutOperators, AreNotThereWithoutRatesOrTraining) {
  const Model plain = read("");
  Model dropped = plain;
  dropped.dropout = {0.1, 0.1, 0.1};
  ExpandOptions options;
  options.sequence = 16;
  ExpandOptions evaluating = options;
  evaluating.dropout = false;
  for (const LayerKind kind : {LayerKind::embedding, LayerKind::block, LayerKind::head}) {
    EXPECT_EQ(ops_of(dropped, kind, 0, evaluating), ops_of(plain, kind, 0, options));
    EXPECT_EQ(expand(dropped, kind, 0, evaluating).tensors.size(), expand(plain, kind, 0, options).tensors.size());
  }
}

TEST(DropoutMasks, AreScaledByWhatIsReallyKept) {
  EXPECT_EQ(dropout_threshold(0.5), 32768U);
  EXPECT_DOUBLE_EQ(dropout_scale(0.5), 2);
  for (const double rate : {0.1, 1.0 / 3, 0.9}) {
    const double kept = 1 - static_cast<double>(dropout_threshold(rate)) / kDropoutLevels;
    EXPECT_NEAR(1 - kept, rate, 0.5 / kDropoutLevels);
    EXPECT_DOUBLE_EQ(kept * dropout_scale(rate), 1);
  }
}

TEST(Relu, WorksInPlaceAndKeepsNothingOfBefore) {
  const Model m = read("activation: relu\n");
  ExpandOptions options;
  options.sequence = 16;
  const LayerProgram program = expand(m, LayerKind::block, 0, options);
  for (const Tensor& tensor : program.tensors) EXPECT_NE(tensor.name, "mlp.before");
  int seen = 0;
  for (const Op& op : ops_of(m, LayerKind::block, 0, options)) {
    if (op.kind == OpKind::relu) {
      EXPECT_EQ(op.in, op.out);
      ++seen;
    }
    if (op.kind == OpKind::relu_grad) {
      EXPECT_EQ(program.tensors[tensor_of(op.in[1])].name, "mlp.after");
      ++seen;
    }
    EXPECT_NE(op.kind, OpKind::gelu);
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace dropout_test
}  // namespace orrery::models
