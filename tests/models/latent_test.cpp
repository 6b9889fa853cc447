// Latent attention expanded: whose parameters are whole on every rank of a tensor group, and where it communicates.
#include <gtest/gtest.h>

#include <map>

#include "models/layers/counts.h"
#include "models/layers/expand.h"

namespace orrery::models {
namespace latent_test {

Model small_latent(std::int64_t q_rank) {
  Model m;
  m.layers = 2;
  m.hidden = 64;
  m.heads = m.kv_heads = 4;
  m.head_dim = 18;
  m.ffn_hidden = 96;
  m.vocab = 100;
  m.max_sequence = 32;
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rope;
  m.bias = m.tied_embeddings = false;
  m.latent = {.q_rank = q_rank, .kv_rank = 20, .nope = 12, .rope = 6, .value = 10};
  return m;
}

TEST(LatentLayers, DivideHeadsAndKeepNarrowProductsWhole) {
  using Shape = std::vector<std::int64_t>;
  for (const std::int64_t q_rank : {24, 0}) {
    const LayerProgram program = expand(small_latent(q_rank), LayerKind::block, 1, {.sequence = 32, .tensor = 2});
    std::map<std::string, Shape> whole = {{"kv_a.weight", {26, 64}}, {"kv_a_norm.weight", {20}}};
    std::map<std::string, Shape> split = {{"kv_b.weight", {2 * 22, 20}}, {"proj.weight", {64, 2 * 10}}};
    if (q_rank > 0) {
      whole["q_a.weight"] = {24, 64}, whole["q_a_norm.weight"] = {24}, split["q_b.weight"] = {2 * 18, 24};
    } else {
      split["q.weight"] = {2 * 18, 64};
    }
    for (const Tensor& t : program.tensors) {
      const std::string at = "h.1.attn.";
      if (t.role != TensorRole::parameter || t.name.rfind(at, 0) != 0) continue;
      const std::string name = t.name.substr(at.size());
      EXPECT_EQ(t.partial_gradient, whole.contains(name)) << name << ": a rank has its own heads' share";
      const auto& of = t.partial_gradient ? whole : split;
      ASSERT_TRUE(of.contains(name)) << name;
      EXPECT_EQ(t.shape, of.at(name)) << name;
      whole.erase(name), split.erase(name);
    }
    EXPECT_TRUE(whole.empty() && split.empty());
  }
}

// As other attention does: one of what it adds, one of its input's gradient; all else stays on a rank.
TEST(LatentLayers, CommunicateOnceEachWay) {
  for (const bool rows : {false, true}) {
    const ExpandOptions options = {.sequence = 32, .tensor = 2, .sequence_parallel = rows};
    Model usual = small_latent(24);
    usual.latent = {}, usual.head_dim = 16;
    const LayerProgram ours = expand(small_latent(24), LayerKind::block, 0, options);
    const LayerProgram theirs = expand(usual, LayerKind::block, 0, options);
    const auto messages = [](const std::vector<Part>& parts) {
      std::vector<GroupCollective> out;
      for (const Part& part : parts)
        if (part.is_communication()) out.push_back(part.collective);
      return out;
    };
    EXPECT_EQ(messages(ours.forward), messages(theirs.forward));
    EXPECT_EQ(messages(ours.backward), messages(theirs.backward));
  }
}

TEST(LatentLayers, PackHeadsOfTheWidthOfKeysAndTurnTheirFirstColumns) {
  int seen = 0;
  for (const Part& part : expand(small_latent(24), LayerKind::block, 0, {.sequence = 32}).forward)
    for (const Op& op : part.ops) {
      if (op.kind != OpKind::latent_pack && op.kind != OpKind::rope && op.kind != OpKind::attention) continue;
      ++seen;
      EXPECT_EQ(op.heads, 4);
      EXPECT_EQ(op.kv_heads, 4);
      EXPECT_EQ(op.head_dim, 18);
      EXPECT_EQ(op.score_scale, 0) << "1/sqrt of the width of q and k";
      EXPECT_EQ(op.rotary, op.kind == OpKind::attention ? 0 : 6);
    }
  EXPECT_EQ(seen, 3);
}

// q, the narrow keys and values, the shared columns in; q, k and padded v out.
TEST(LatentLayers, MoveTheBytesOfPackedHeads) {
  Op op;
  op.kind = OpKind::latent_pack;
  op.n = 32, op.heads = op.kv_heads = 4, op.head_dim = 18, op.rotary = 6, op.k = 10;
  EXPECT_DOUBLE_EQ(bytes_of(op), 4.0 * 32 * (4 * 18 + 4 * 22 + 6 + 3 * 4 * 18));
  op.kind = OpKind::head_values;
  EXPECT_DOUBLE_EQ(bytes_of(op), 4.0 * 32 * 2 * 4 * 10);
  op.kind = OpKind::head_values_grad;
  EXPECT_DOUBLE_EQ(bytes_of(op), 4.0 * 32 * 4 * (10 + 18));
  op.kind = OpKind::split_columns, op.m = 20, op.k = 6;
  EXPECT_DOUBLE_EQ(bytes_of(op), 4.0 * 32 * 2 * 26);
}

Model small_indexed() {
  Model m = small_latent(24);
  m.indexer = {.heads = 3, .width = 8, .chosen = 10};
  return m;
}

TEST(Indexers, AddTheirProductsAndANormOfTheKey) {
  const std::int64_t more = 24 * 3 * 8 + 64 * 8 + 2 * 8 + 64 * 3;
  EXPECT_EQ(parameters(small_indexed()), parameters(small_latent(24)) + 2 * more);
  for (const Tensor& t : expand(small_indexed(), LayerKind::block, 1, {.sequence = 32, .tensor = 2}).tensors) {
    if (t.role != TensorRole::parameter || t.name.find(".index.") == std::string::npos) continue;
    EXPECT_EQ(t.shape, t.logical_shape) << t.name << ": all heads of attention read the same tokens";
    EXPECT_TRUE(t.partial_gradient) << t.name << ": a rank learns from its own heads";
  }
}

TEST(Indexers, CommunicateNothingMore) {
  for (const bool rows : {false, true}) {
    const ExpandOptions options = {.sequence = 32, .tensor = 2, .sequence_parallel = rows};
    const auto messages = [&](const Model& model) {
      const LayerProgram program = expand(model, LayerKind::block, 0, options);
      std::size_t count = 0;
      for (const auto* parts : {&program.forward, &program.backward})
        for (const Part& part : *parts) count += part.is_communication() ? 1 : 0;
      return count;
    };
    EXPECT_EQ(messages(small_indexed()), messages(small_latent(24)));
  }
}

// 32 tokens: the small heads score 1 + 2 + ... + 32 pairs, attention reads 1 + 2 + ... + 10 and then 22 times 10.
TEST(Indexers, LetAttentionReadTheChosenTokensAlone) {
  const double scored = 32.0 * 33 / 2, read = 10.0 * 11 / 2 + 22 * 10;
  const LayerProgram program = expand(small_indexed(), LayerKind::block, 0, {.sequence = 32});
  std::map<OpKind, Op> ops;
  for (const auto* parts : {&program.forward, &program.backward})
    for (const Part& part : *parts)
      for (const Op& op : part.ops) ops[op.kind] = op;
  EXPECT_DOUBLE_EQ(flops_of(ops.at(OpKind::attention)), 2 * 2 * read * 4 * 18);
  EXPECT_DOUBLE_EQ(flops_of(ops.at(OpKind::attention), true), 2 * 2 * 32.0 * 10 * 4 * 18) << "a model's own work";
  EXPECT_DOUBLE_EQ(flops_of(ops.at(OpKind::choose_tokens)), 2 * scored * 3 * 8);
  EXPECT_DOUBLE_EQ(flops_of(ops.at(OpKind::choose_tokens_grad)), 2 * read * (4 * 18 + 3 * 3 * 8));
  EXPECT_DOUBLE_EQ(bytes_of(ops.at(OpKind::choose_tokens)), 32.0 * 4 * (3 * 8 + 8 + 3 + 10));
  EXPECT_DOUBLE_EQ(bytes_of(ops.at(OpKind::choose_tokens_grad)), 32.0 * 4 * (3 * 4 * 18 + 2 * (3 * 8 + 8 + 3) + 10));
  for (const OpKind kind : {OpKind::attention, OpKind::attention_grad})
    EXPECT_EQ(program.tensors[tensor_of(ops.at(kind).in.back())].name, "index.choice");
}

TEST(Indexers, ChooseAllTokensOfAShortSequence) {
  double flops[2] = {};
  for (const bool indexed : {false, true})
    for (const Part& part :
         expand(indexed ? small_indexed() : small_latent(24), LayerKind::block, 0, {.sequence = 8}).forward)
      for (const Op& op : part.ops)
        if (op.kind == OpKind::attention) flops[indexed ? 1 : 0] = flops_of(op);
  EXPECT_EQ(flops[0], flops[1]);
  EXPECT_GT(flops[0], 0);
}

}  // namespace latent_test
}  // namespace orrery::models
