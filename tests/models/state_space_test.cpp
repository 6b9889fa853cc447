// State spaces expanded: how a tensor group divides their tensors, what they count, and the pattern that places them.
#include "models/state_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/layers/counts.h"
#include "models/layers/expand.h"
#include "models/operators/operators.h"
#include "models/read/read.h"

namespace orrery::models {
namespace state_space_test {

Model small_hybrid() {
  Model m;
  m.layers = 4;
  m.hidden = 32;
  m.heads = 4, m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn_hidden = 96;
  m.vocab = 100;
  m.max_sequence = 32;
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::squared_relu;
  m.positions = Positions::none;
  m.bias = m.tied_embeddings = false;
  m.ssm = {.heads = 6, .width = 8, .groups = 2, .state = 16, .taps = 4, .chunk = 8};
  m.pattern = {
      {Mixer::mamba, Feed::none}, {Mixer::none, Feed::mlp}, {Mixer::attention, Feed::none}, {Mixer::mamba, Feed::mlp}};
  return m;
}

TEST(StateSpaceLayers, DivideEverythingButTheirNormByHeads) {
  using Shape = std::vector<std::int64_t>;
  const LayerProgram program = expand(small_hybrid(), LayerKind::block, 0, {.sequence = 32, .tensor = 2});
  // Of inner 48, groups of state 2 x 16 and 6 heads.
  std::map<std::string, Shape> expected = {{"ln_1.weight", {32}},
                                           {"ssm.in.weight", {24 + 24 + 16 + 16 + 3, 32}},
                                           {"ssm.conv.weight", {56, 1, 4}},
                                           {"ssm.conv.bias", {56}},
                                           {"ssm.dt_bias", {3}},
                                           {"ssm.a_log", {3}},
                                           {"ssm.d", {3}},
                                           {"ssm.norm.weight", {24}},
                                           {"ssm.proj.weight", {32, 24}}};
  for (const Tensor& t : program.tensors) {
    if (t.role != TensorRole::parameter) continue;
    const std::string name = t.name.substr(4);
    ASSERT_TRUE(expected.contains(name)) << name;
    EXPECT_EQ(t.shape, expected.at(name)) << name;
    EXPECT_FALSE(t.partial_gradient) << name;
    expected.erase(name);
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_EQ(parameters_of_block(small_hybrid(), 0),
            32 + (2 * 48 + 2 * 32 + 6) * 32 + (48 + 64) * 5 + 3 * 6 + 48 + 48 * 32);
  EXPECT_EQ(parameters_of_block(small_hybrid(), 1), 32 + 2 * 32 * 96);
  EXPECT_EQ(parameters_of_block(small_hybrid(), 2), 32 + 32 * (4 + 2 * 2) * 8 + 32 * 32);
  EXPECT_EQ(parameters_of_block(small_hybrid(), 3),
            parameters_of_block(small_hybrid(), 0) + parameters_of_block(small_hybrid(), 1));
}

TEST(StateSpaceLayers, CommunicateOnceEachWay) {
  for (const bool rows : {false, true}) {
    const LayerProgram program =
        expand(small_hybrid(), LayerKind::block, 0, {.sequence = 32, .tensor = 2, .sequence_parallel = rows});
    const auto messages = [](const std::vector<Part>& parts) {
      std::vector<GroupCollective> all;
      for (const Part& part : parts)
        if (part.is_communication()) all.push_back(part.collective);
      return all;
    };
    using G = GroupCollective;
    using All = std::vector<GroupCollective>;
    EXPECT_EQ(messages(program.forward), rows ? (All{G::all_gather, G::reduce_scatter}) : All{G::all_reduce});
    EXPECT_EQ(messages(program.backward),
              rows ? (All{G::all_gather, G::all_gather, G::reduce_scatter}) : All{G::all_reduce});
  }
}

const Op* find_op(const std::vector<Part>& parts, OpKind kind) {
  for (const Part& part : parts)
    for (const Op& op : part.ops)
      if (op.kind == kind) return &op;
  return nullptr;
}

// By hand, for 2 sequences of 32 tokens in chunks of 8.
TEST(StateSpaceLayers, CountTheProductsOfTheirChunks) {
  const LayerProgram program = expand(small_hybrid(), LayerKind::block, 0, {.batch = 2, .sequence = 32});
  const Op* scan = find_op(program.forward, OpKind::state_scan);
  const Op* grad = find_op(program.backward, OpKind::state_scan_grad);
  ASSERT_TRUE(scan && grad);
  const double tokens = 64, scores = tokens * 2 * 16, values = tokens * 48, states = tokens * 48 * 16;
  EXPECT_DOUBLE_EQ(flops_of(*scan, true), 2 * (8 * scores + 8 * values + 2 * states));
  EXPECT_DOUBLE_EQ(flops_of(*scan), 2 * (4.5 * scores + 4.5 * values + 2 * states)) << "half of a chunk is masked";
  EXPECT_DOUBLE_EQ(flops_of(*grad, true), 2 * flops_of(*scan, true));
  EXPECT_DOUBLE_EQ(flops_of(*grad), 2 * (13.5 * scores + 13.5 * values + 5 * states));
  // x, B, C, dt and y in fp32; the states before 2 x 4 chunks and their scores, written and read.
  EXPECT_DOUBLE_EQ(bytes_of(*scan), 4 * tokens * (112 + 6 + 48) + 2 * 4 * 8 * (48 * 16 + 2 * 8 * 8));
  EXPECT_DOUBLE_EQ(flops_of(*find_op(program.forward, OpKind::causal_conv)), tokens * 112 * (2 * 4 + 10));
}

Model small_delta() {
  Model m = small_hybrid();
  m.ssm = {.heads = 4, .width = 8, .groups = 2, .state = 16, .taps = 4, .chunk = 8, .conv_bias = false};
  m.attention_gate = m.qk_norm = true;
  m.pattern = {{Mixer::delta, Feed::none}, {Mixer::attention, Feed::none}};
  return m;
}

TEST(GatedDeltaLayers, DivideEverythingByHeadsButTheWeightOfTheirNorm) {
  using Shape = std::vector<std::int64_t>;
  const LayerProgram program = expand(small_delta(), LayerKind::block, 0, {.sequence = 32, .tensor = 2});
  // Of inner 32, groups of state 2 x 16 and 4 heads.
  std::map<std::string, Shape> expected = {{"ln_1.weight", {32}},
                                           {"delta.in.weight", {16 + 16 + 16 + 16 + 2 + 2, 32}},
                                           {"delta.conv.weight", {48, 1, 4}},
                                           {"delta.dt_bias", {2}},
                                           {"delta.a_log", {2}},
                                           {"delta.norm.weight", {8}},
                                           {"delta.proj.weight", {32, 16}}};
  for (const Tensor& t : program.tensors) {
    if (t.role != TensorRole::parameter) continue;
    const std::string name = t.name.substr(4);
    ASSERT_TRUE(expected.contains(name)) << name;
    EXPECT_EQ(t.shape, expected.at(name)) << name;
    EXPECT_EQ(t.partial_gradient, name == "delta.norm.weight") << name;
    expected.erase(name);
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_EQ(parameters_of_block(small_delta(), 0), 32 + (2 * 32 + 2 * 32 + 2 * 4) * 32 + 96 * 4 + 2 * 4 + 8 + 32 * 32);
  // q, its gate, k and v; norms of heads; the way back.
  EXPECT_EQ(parameters_of_block(small_delta(), 1), 32 + 32 * (2 * 4 + 2 * 2) * 8 + 2 * 8 + 32 * 32);
}

// By hand, for 2 sequences of 32 tokens in chunks of 8.
TEST(GatedDeltaLayers, CountTheProductsOfTheirChunks) {
  const LayerProgram program = expand(small_delta(), LayerKind::block, 0, {.batch = 2, .sequence = 32});
  const Op* rule = find_op(program.forward, OpKind::delta_rule);
  const Op* grad = find_op(program.backward, OpKind::delta_rule_grad);
  ASSERT_TRUE(rule && grad);
  // k k^T and q k^T of 2 groups; the inverse of an 8 x 8 triangle, 8 x 7 x 6 / 6 for 8 tokens, of 4 heads; its products
  // with keys of 16 columns and values of 8, q k^T with values; three products with 8 x 16 states.
  const double tokens = 64, scores = tokens * 2 * 16, inverse = tokens * 4 * 7, keys = tokens * 4 * 16,
               values = tokens * 32, states = tokens * 32 * 16;
  EXPECT_DOUBLE_EQ(flops_of(*rule, true), 2 * (8 * (2 * scores + keys + 2 * values) + inverse + 3 * states));
  EXPECT_DOUBLE_EQ(flops_of(*rule), 2 * (4.5 * (2 * scores + keys + 2 * values) + inverse + 3 * states));
  EXPECT_DOUBLE_EQ(flops_of(*grad, true), 2 * flops_of(*rule, true));
  EXPECT_DOUBLE_EQ(flops_of(*grad), 3 * flops_of(*rule) - 2 * (4.5 * values + states));
  // v, k, q, a, b and y in fp32; states before 2 x 4 chunks and inverses, keys, values and their errors twice.
  EXPECT_DOUBLE_EQ(bytes_of(*rule),
                   4 * tokens * (96 + 2 * 4 + 32) + 8 * 8 * (32 * 16 + 4 * 8 * 8) + 2 * 4 * tokens * (4 * 16 + 2 * 32));
  EXPECT_DOUBLE_EQ(flops_per_token_forward(small_delta(), 32) * 32,
                   2 * (flops_of(*rule, true) / 2 + 2.0 * 32 * 32 * (2 * 32 + 2 * 32 + 8) + 2.0 * 32 * 32 * 32) +
                       2 * (2.0 * 32 * 32 * (8 + 4) * 8 + 2 * 2.0 * 32 * 32 * 32 + 2.0 * 32 * 32 * 32) +
                       2.0 * 32 * 32 * 100)
      << "two delta networks, two gated attentions over 32 x 32 scores, and the head";
}

TEST(GatedDeltaLayers, CommunicateAsOtherBlocks) {
  for (const std::int64_t layer : {0, 1}) {
    const LayerProgram program = expand(small_delta(), LayerKind::block, layer, {.sequence = 32, .tensor = 2});
    for (const auto* parts : {&program.forward, &program.backward})
      EXPECT_EQ(std::count_if(parts->begin(), parts->end(), [](const Part& p) { return p.is_communication(); }), 1);
  }
}

TEST(GatedDeltaLayers, GateWhatAttentionsProjectionReads) {
  const LayerProgram program = expand(small_delta(), LayerKind::block, 1, {.sequence = 32});
  const Op* gate = find_op(program.forward, OpKind::output_gate);
  ASSERT_TRUE(gate);
  const auto reads = [&](const Part& part) {
    return std::any_of(part.ops.begin(), part.ops.end(),
                       [&](const Op& op) { return op.kind == OpKind::matmul && op.in[0] == gate->out[0]; });
  };
  EXPECT_TRUE(std::any_of(program.forward.begin(), program.forward.end(), reads));
}

TEST(StateSpaceLayers, CountInAModelsWork) {
  Model without = small_hybrid();
  without.pattern = {{Mixer::none, Feed::mlp}};
  without.ssm = {};
  Model with = small_hybrid();
  with.pattern = {{Mixer::mamba, Feed::mlp}};
  const double products = 2.0 * 32 * (2 * 48 + 2 * 32 + 6) + 2.0 * 48 * 32;
  const double scan = 2.0 * (8 * 2 * 16 + 8 * 48 + 2 * 48 * 16);
  EXPECT_DOUBLE_EQ(flops_per_token_forward(with, 32) - flops_per_token_forward(without, 32), 4 * (products + scan));
}

TEST(Patterns, NameTheHalvesOfABlock) {
  for (const char* word : {"mamba", "delta", "attention", "mlp", "experts", "mamba+mlp", "delta+experts"}) {
    const auto parts = parts_of(word);
    ASSERT_TRUE(parts) << word;
    EXPECT_EQ(word_of(*parts), word);
  }
  for (const char* word : {"", "+", "mlp+mamba", "mamba+", "linear"}) EXPECT_FALSE(parts_of(word)) << word;
  EXPECT_EQ(letter_of(*parts_of_letter('E')), 'E');
  EXPECT_FALSE(letter_of({Mixer::mamba, Feed::mlp}));
  EXPECT_FALSE(letter_of({Mixer::delta, Feed::none})) << "Nemotron-H has none";
}

TEST(Patterns, AreWrittenAsTheirShortestPeriod) {
  const BlockParts a = {Mixer::mamba, Feed::none}, b = {Mixer::none, Feed::mlp};
  EXPECT_EQ(shortest_period({a, b, a, b}), (std::vector{a, b}));
  EXPECT_EQ(shortest_period({a, b, a}), (std::vector{a, b, a})) << "two do not divide three";
  EXPECT_EQ(shortest_period({a, a}), std::vector{a});
}

const char* const kHybrid = R"(
name: small
family: nemotron_h
layers: 4
hidden: 32
heads: 4
ffn_hidden: 96
vocab: 100
max_sequence: 32
)";

TEST(Patterns, AreReadAndWritten) {
  const std::string text = kHybrid + std::string(
                                         "state_space: {heads: 8, width: 8, groups: 2, state: 16, chunk: 8}\n"
                                         "pattern: [mamba, mlp, attention, mlp]\n");
  const auto model = parse_model(text, "model.yaml");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  EXPECT_EQ(model->ssm.groups, 2);
  EXPECT_EQ(model->parts(2).mixer, Mixer::attention);
  const auto again = parse_model(write_model(*model), "model.yaml");
  ASSERT_TRUE(again) << write_model(*model);
  EXPECT_EQ(*again, *model);
}

TEST(Patterns, OfStateSpacesAloneNeedNoHeadsOfAttention) {
  const auto model = parse_model(
      "name: small\nfamily: mamba2\nlayers: 2\nhidden: 32\nvocab: 100\nmax_sequence: 32\n"
      "state_space: {heads: 8, width: 8, state: 16}\n",
      "model.yaml");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  EXPECT_EQ(model->heads, 8);
}

TEST(Patterns, AreCheckedAgainstTheModel) {
  const std::string ssm = "state_space: {heads: 8, width: 8, groups: 2, state: 16}\n";
  for (const auto& [keys, what] : std::vector<std::pair<std::string, std::string>>{
           {"pattern: [mamba, mlp]\n", "whose sizes are missing"},
           {ssm, "no block of the pattern is one"},
           {ssm + "pattern: [mamba, mlp, mlp]\n", "does not divide 4 layers"},
           {ssm + "pattern: [mamba, liquid]\n", "no kind of block"},
           {ssm + "pattern: [mamba, experts]\n", "the pattern alone says"},
           {ssm + "pattern: [mamba]\ncausal: false\n", "from its beginning"},
           {"pattern: [delta, mlp]\n", "whose sizes are missing"},
           {"state_space: {heads: 8, width: 8, groups: 2, state: 16, norm_groups: 1}\npattern: [delta]\n",
            "takes each head by itself"},
           {"state_space: {heads: 8, width: 8, groups: 2, state: 16, normed: false}\npattern: [delta+mlp, mamba+mlp]\n",
            "takes each head by itself"},
           {"state_space: {heads: 8, width: 8, groups: 2, state: 16, scales: [1, 2, 1, 1, 1]}\n"
            "pattern: [delta+mlp, both+mlp]\n",
            "takes each head by itself"},
           {"state_space: {heads: 8, width: 8, groups: 3, state: 16}\npattern: [mamba]\n", "do not divide"}}) {
    const auto refused = parse_model(kHybrid + keys, "model.yaml");
    ASSERT_FALSE(refused) << keys;
    EXPECT_NE(base::render(refused.error(), false).find(what), std::string::npos)
        << base::render(refused.error(), false);
  }
}

}  // namespace state_space_test
}  // namespace orrery::models
