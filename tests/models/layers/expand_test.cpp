// Expanded layers: shapes, FLOPs, and who communicates where.
#include "models/layers/expand.h"

#include <gtest/gtest.h>

#include "models/layers/counts.h"

namespace orrery::models {
namespace expand_test {

Model gpt2() {
  Model m;
  m.layers = 12;
  m.hidden = 768;
  m.heads = m.kv_heads = 12;
  m.head_dim = 64;
  m.ffn_hidden = 3072;
  m.vocab = 50257;
  m.max_sequence = 1024;
  return m;
}

Model llama2_7b() {
  Model m;
  m.family = Family::llama;
  m.layers = 32;
  m.hidden = 4096;
  m.heads = m.kv_heads = 32;
  m.head_dim = 128;
  m.ffn_hidden = 11008;
  m.vocab = 32000;
  m.max_sequence = 4096;
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rope;
  m.bias = false;
  m.tied_embeddings = false;
  return m;
}

Model bert_base() {
  Model m;
  m.family = Family::bert;
  m.layers = 12;
  m.hidden = 768;
  m.heads = m.kv_heads = 12;
  m.head_dim = 64;
  m.ffn_hidden = 3072;
  m.vocab = 30522;
  m.max_sequence = 512;
  m.token_types = 2;
  m.causal = m.pre_norm = false;
  m.gelu = Gelu::erf;
  m.masked_fraction = 0.15;
  m.next_sentence = true;
  return m;
}

TEST(Counts, PublishedParameterCounts) {
  EXPECT_EQ(parameters(gpt2()), 124439808);
  EXPECT_EQ(parameters(bert_base()), 110106428);  // Hugging Face's BertForPreTraining
  EXPECT_EQ(parameters(llama2_7b()), 6738415616);
}

TEST(Counts, ForwardFlopsOfGptTwoByHand) {
  // Per token and block: 2 * 12 C^2 products, and 4 T C for the full attention matrix; head 2 C V.
  const double c = 768, t = 1024;
  const double expected = 12 * (24 * c * c + 4 * t * c) + 2 * c * 50257;
  EXPECT_NEAR(flops_per_token_forward(gpt2(), 1024) / expected, 1, 1e-12);
}

// Backward takes twice a forward pass; what is recomputed is not the model's work.
TEST(Counts, AStepIsThreeForwardPassesOfItsTokens) {
  const double c = 768, t = 1024, token = 12 * (24 * c * c + 4 * t * c) + 2 * c * 50257;
  EXPECT_NEAR(flops_per_step(gpt2(), 5, 1024) / (3 * token * 5 * t), 1, 1e-12);
}

TEST(Expand, ShardsOfAllTensorRanksMakeTheWhole) {
  for (std::int64_t tensor : {1, 2, 4}) {
    for (LayerKind kind : {LayerKind::embedding, LayerKind::block, LayerKind::head}) {
      const LayerProgram program =
          expand(gpt2(), kind, 3, {.batch = 2, .sequence = 8, .tensor = tensor, .vocab_multiple = 1});
      for (const Tensor& t : program.tensors) {
        if (t.role != TensorRole::parameter || t.split_axis < 0) continue;
        const auto axis = static_cast<std::size_t>(t.split_axis);
        EXPECT_GE(t.shape[axis] * tensor, t.logical_shape[axis]) << t.name;
        EXPECT_LT(t.shape[axis] * tensor, t.logical_shape[axis] + tensor) << t.name;
      }
    }
  }
}

TEST(Expand, BackwardIsTwiceForwardInMatrixProducts) {
  const LayerProgram program = expand(gpt2(), LayerKind::block, 0, {.batch = 2, .sequence = 64});
  const auto products = [](const std::vector<Part>& parts) {
    double total = 0;
    for (const Part& part : parts)
      for (const Op& op : part.ops)
        if (op.kind == OpKind::matmul) total += flops_of(op);
    return total;
  };
  EXPECT_DOUBLE_EQ(products(program.backward), 2 * products(program.forward));
  EXPECT_DOUBLE_EQ(products(program.forward), 2.0 * 128 * 12 * 768 * 768);
}

std::vector<Op> products_of(const LayerProgram& program, bool forward) {
  std::vector<Op> out;
  for (const Part& part : forward ? program.forward : program.backward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::matmul) out.push_back(op);
  return out;
}

TEST(Expand, Fp8ProductsOfABlockWriteTheirRoundedOperandsIntoMemoryThatTheyShare) {
  const ExpandOptions options{.batch = 2, .sequence = 64, .dtype = DType::bf16, .products = DType::fp8};
  const LayerProgram block = expand(gpt2(), LayerKind::block, 0, options);
  // The widest of each kind: rows x 3072 and 3072 x 768 of the MLP's forward and input gradient; its weight's gradient
  // reads rows x 3072 and rows x 768.
  const std::int64_t rows = 128, header = 256;
  const std::int64_t forward = header + rows * 3072 + 768 * 3072, weight = header + rows * (3072 + 768);
  for (const bool first : {true, false})
    for (const Op& op : products_of(block, first)) {
      EXPECT_TRUE(op.rounded);
      ASSERT_EQ(op.out.size(), 2U);
      const Tensor& room = block.tensors[tensor_of(op.out[1])];
      EXPECT_EQ(room.dtype, DType::uint8);
      EXPECT_EQ(room.bytes(), op.trans_a ? weight : forward) << room.name;
    }
  std::int64_t rooms = 0;
  for (const Tensor& t : block.tensors) rooms += t.dtype == DType::uint8;
  EXPECT_EQ(rooms, 3);
  for (const LayerKind kind : {LayerKind::embedding, LayerKind::head})
    for (const bool first : {true, false})
      for (const Op& op : products_of(expand(gpt2(), kind, 0, options), first)) EXPECT_FALSE(op.rounded);
}

TEST(Expand, ProductsOfSizesThatFp8DoesNotTakeKeepSixteenBits) {
  ExpandOptions options{.batch = 1, .sequence = 72, .dtype = DType::bf16, .products = DType::fp8};
  for (const bool first : {true, false})
    for (const Op& op : products_of(expand(gpt2(), LayerKind::block, 0, options), first)) {
      EXPECT_FALSE(op.rounded) << "72 rows are no multiple of 16";
      EXPECT_EQ(op.out.size(), 1U);
    }
  options.products = DType::tf32;
  options.dtype = DType::fp32;
  for (const LayerKind kind : {LayerKind::block, LayerKind::head})
    for (const Op& op : products_of(expand(gpt2(), kind, 0, options), true)) {
      EXPECT_TRUE(op.rounded) << "of any size, of any layer";
      EXPECT_EQ(op.out.size(), 1U);
    }
}

TEST(Expand, CommunicationAppearsOnlyWithATensorGroup) {
  const auto all_reduces = [](std::int64_t tensor, LayerKind kind) {
    const LayerProgram program = expand(gpt2(), kind, 0, {.tensor = tensor});
    std::pair<int, int> count;
    for (const Part& part : program.forward) count.first += part.is_communication();
    for (const Part& part : program.backward) count.second += part.is_communication();
    return count;
  };
  EXPECT_EQ(all_reduces(1, LayerKind::block), std::make_pair(0, 0));
  EXPECT_EQ(all_reduces(2, LayerKind::block), std::make_pair(2, 2));
  EXPECT_EQ(all_reduces(2, LayerKind::embedding), std::make_pair(1, 0));
  EXPECT_EQ(all_reduces(2, LayerKind::head), std::make_pair(2, 1));
}

TEST(Expand, SequenceParallelismGathersAndScattersWhereAnAllReduceWas) {
  const auto count = [](const std::vector<Part>& parts, GroupCollective kind) {
    int n = 0;
    for (const Part& part : parts) n += part.is_communication() && part.collective == kind;
    return n;
  };
  for (const LayerKind kind : {LayerKind::embedding, LayerKind::block, LayerKind::head}) {
    const LayerProgram p = expand(gpt2(), kind, 0, {.sequence = 8, .tensor = 2, .sequence_parallel = true});
    const int halves = kind == LayerKind::block ? 2 : 1;
    EXPECT_EQ(count(p.forward, GroupCollective::all_gather), kind == LayerKind::embedding ? 0 : halves);
    EXPECT_EQ(count(p.forward, GroupCollective::reduce_scatter), kind == LayerKind::head ? 0 : halves);
    // Backward gathers the gradient behind the block (not behind the loss) and once more what the product kept.
    EXPECT_EQ(count(p.backward, GroupCollective::all_gather), kind == LayerKind::block ? 4 : 1);
    EXPECT_EQ(count(p.backward, GroupCollective::reduce_scatter), kind == LayerKind::embedding ? 0 : halves);
    for (const Tensor& t : p.tensors) {
      if (t.role != TensorRole::input && t.role != TensorRole::output) continue;
      EXPECT_EQ(t.shape.front(), 4) << t.name;
    }
  }
}

TEST(Bert, HeadsWorkOnTheRowsThatArePredictedAndTheFirstOfEachSequence) {
  for (const bool sharded : {false, true}) {
    const LayerProgram p = expand(bert_base(), LayerKind::head, -1,
                                  {.batch = 4, .sequence = 128, .tensor = 2, .sequence_parallel = sharded});
    int gathers = 0, losses = 0, sums = 0;
    for (const Part& part : p.forward) {
      sums += part.is_communication() && part.reduce == GroupOperation::sum;
      for (const Op& op : part.ops) {
        if (op.kind == OpKind::gather_rows) {
          EXPECT_EQ(op.n, ++gathers == 1 ? 4 * 19 : 4);
          EXPECT_EQ(op.k, sharded ? 256 : 512) << "rows of x on this rank";
        }
        if (op.kind == OpKind::matmul && op.n > 1024) {
          EXPECT_EQ(op.m, 4 * 19) << "the product with the vocabulary";
        }
        if (op.kind == OpKind::cross_entropy || op.kind == OpKind::class_loss) {
          ++losses;
          // With one token in the whole step there would be 1/128 of a sequence.
          EXPECT_DOUBLE_EQ(op.scale, op.kind == OpKind::cross_entropy ? 128.0 / 19 : 128.0);
        }
      }
    }
    EXPECT_EQ(gathers, 2);
    EXPECT_EQ(losses, 2);
    EXPECT_EQ(sums, sharded ? 3 : 1) << "rows of other ranks, and the loss's sums";
    for (const Tensor& t : p.tensors) {
      EXPECT_FALSE(t.partial_gradient) << t.name << " is used on rows that every rank has";
    }
  }
}

TEST(Bert, ForwardFlopsByHand) {
  // Per sequence of 512: 24 C^2 + 4 T C a token and block; 77 tokens by the transform and the vocabulary; the pooler
  // and two classes once.
  const double c = 768, t = 512;
  const double expected = 12 * t * (24 * c * c + 4 * t * c) + 77 * (2 * c * c + 2 * c * 30522) + 2 * c * c + 4 * c;
  EXPECT_NEAR(flops_per_token_forward(bert_base(), 512) * t / expected, 1, 1e-12);
}

// As the models' authors train them: matrices and tables decay, biases and the weights of norms do not.
TEST(Expand, WeightDecayIsOfMatricesAlone) {
  for (const Model& model : {gpt2(), llama2_7b(), bert_base()})
    for (const LayerKind kind : {LayerKind::embedding, LayerKind::block, LayerKind::head}) {
      int vectors = 0;
      const auto look = [&](const Tensor& tensor) {
        EXPECT_EQ(tensor.decay, tensor.logical_shape.size() == 2) << tensor.name;
        vectors += tensor.logical_shape.size() == 1;
      };
      for (const Tensor& tensor : expand(model, kind, 0, {}).tensors) {
        if (tensor.role != TensorRole::parameter) continue;
        if (tensor.pieces.empty()) look(tensor);
        for (const Tensor& piece : tensor.pieces) look(piece);
      }
      EXPECT_TRUE(vectors > 0 || kind == LayerKind::embedding);
    }
}

TEST(Expand, AttentionByHand) {
  Op op;
  op.kind = OpKind::attention;
  op.batch = 2;
  op.sequence = 8;
  op.heads = op.kv_heads = 3;
  op.head_dim = 4;
  EXPECT_DOUBLE_EQ(flops_of(op), 2 * 2.0 * 2 * 3 * 8 * 8 * 4);
  op.causal = true;
  EXPECT_DOUBLE_EQ(flops_of(op), 2 * 2.0 * 2 * 3 * 36 * 4);  // 36 of 64 pairs are on or below the diagonal
  EXPECT_DOUBLE_EQ(flops_of(op, true), 2 * 2.0 * 2 * 3 * 8 * 8 * 4);
}

// dV, dP, dQ and dK are four products; a flash kernel computes the scores again (Dao et al. 2022, algorithm 4).
TEST(Expand, BackwardOfAttentionByHand) {
  Op op;
  op.kind = OpKind::attention_grad;
  op.batch = 2, op.sequence = 8, op.heads = op.kv_heads = 3, op.head_dim = 4;
  const double product = 2.0 * 2 * 3 * 8 * 8 * 4;
  op.flash = false;
  EXPECT_DOUBLE_EQ(flops_of(op), 4 * product);
  op.flash = true;
  EXPECT_DOUBLE_EQ(flops_of(op), 5 * product);
  EXPECT_DOUBLE_EQ(flops_of(op, true), 4 * product) << "what is computed again is not the model's work";
}

// Eight heads share two of keys and values: q, k and v are (8 + 2 2) 4 columns, y 8 4, and a number for each row.
TEST(Expand, AttentionWithGroupedQueriesMovesFewerKeysAndValues) {
  Op op;
  op.kind = OpKind::attention;
  op.batch = 2, op.sequence = 8, op.heads = 8, op.kv_heads = 2, op.head_dim = 4;
  op.flash = true, op.dtype = DType::bf16;
  EXPECT_DOUBLE_EQ(bytes_of(op), 2.0 * 16 * (48 + 32) + 4.0 * 16 * 8);
  op.kind = OpKind::attention_grad;
  EXPECT_DOUBLE_EQ(bytes_of(op), 2.0 * 2 * 16 * (48 + 32) + 4.0 * 16 * 8);
}

int gathers(const LayerProgram& program, bool for_fp8) {
  int count = 0;
  for (const std::vector<Part>* parts : {&program.forward, &program.backward})
    for (const Part& part : *parts)
      count += part.is_communication() && part.collective == GroupCollective::all_gather && part.for_fp8 == for_fp8;
  return count;
}

// Transformer Engine rounds rows before it gathers them; an adapter beside the product reads them as they are.
TEST(Expand, TellsWhichGatheredRowsOnlyFp8ProductsRead) {
  ExpandOptions options{.batch = 2, .sequence = 64, .tensor = 2, .dtype = DType::bf16, .sequence_parallel = true};
  const LayerProgram wide = expand(gpt2(), LayerKind::block, 0, options);
  EXPECT_GT(gathers(wide, false), 0);
  EXPECT_EQ(gathers(wide, true), 0) << "nothing is rounded";
  options.products = DType::fp8;
  const LayerProgram rounded = expand(gpt2(), LayerKind::block, 0, options);
  EXPECT_EQ(gathers(rounded, true), gathers(wide, false));
  EXPECT_EQ(gathers(rounded, false), 0);
  EXPECT_EQ(gathers(expand(gpt2(), LayerKind::head, 0, options), true), 0) << "the head's products stay wide";
  Model adapted = gpt2();
  adapted.lora = {.rank = 8, .alpha = 8, .projection = false, .up = false, .down = false};
  const LayerProgram beside = expand(adapted, LayerKind::block, 0, options);
  EXPECT_GT(gathers(beside, false), 0) << "the adapter of q, k and v reads them too";
  EXPECT_GT(gathers(beside, true), 0);
}

}  // namespace expand_test
}  // namespace orrery::models
