// The table of operators: each kind has a row of its own, and what is read off it.
#include "models/operators/operators.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::models {
namespace operators_test {

Op op_of(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

TEST(OperatorTable, HasEachKindUnderANameOfItsOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    EXPECT_EQ(traits_of(kind).kind, kind);
    EXPECT_TRUE(names.insert(name_of(kind)).second) << name_of(kind);
    EXPECT_EQ(op_kind(name_of(kind)), kind);
  }
  EXPECT_EQ(op_kind("sigmoid_of_nothing"), std::nullopt);
}

TEST(OperatorTable, NamesEachOperandOnceAndSaysOfOutputsAloneWhatIsDoneToThem) {
  for (const OperatorTraits& row : kOperators) {
    std::set<std::string_view> in, out;
    for (const OperandTraits& one : row.in) {
      EXPECT_TRUE(in.insert(one.name).second) << row.name << ": " << one.name;
      EXPECT_EQ(one.use, Use::reads) << row.name << ": " << one.name;
    }
    for (const OperandTraits& one : row.out) {
      EXPECT_TRUE(out.insert(one.name).second) << row.name << ": " << one.name;
      EXPECT_NE(one.use, Use::reads) << row.name << ": " << one.name;
    }
    EXPECT_GT(row.out.size(), 0U) << row.name;
  }
}

TEST(OperatorTable, ReadsTheMarksBehindAName) {
  constexpr Operands outputs{Use::writes, "y mean# loss+ dx~ dweight^ state*? last"};
  ASSERT_EQ(outputs.size(), 7U);
  EXPECT_EQ(outputs[0].name, "y");
  EXPECT_EQ(outputs[0].use, Use::writes);
  EXPECT_TRUE(outputs[1].statistic);
  EXPECT_EQ(outputs[2].use, Use::adds);
  EXPECT_EQ(outputs[3].use, Use::adds_if);
  EXPECT_EQ(outputs[4].use, Use::sums);
  EXPECT_EQ(outputs[5].name, "state");
  EXPECT_EQ(outputs[5].use, Use::changes);
  EXPECT_TRUE(outputs[5].optional);
  EXPECT_FALSE(outputs[6].optional);
}

// What reads an operand may not be held to write alone, and the other way round.
TEST(OperatorTable, SaysWhichOutputsAreWrittenAndNotRead) {
  Op product = op_of(OpKind::matmul);
  EXPECT_TRUE(only_writes(product, 0));
  product.accumulate = true;
  EXPECT_FALSE(only_writes(product, 0));
  EXPECT_EQ(writable_sums(product), std::vector<std::size_t>{0});
  EXPECT_TRUE(only_writes(op_of(OpKind::layer_norm_grad), 1));
  Op scatter = op_of(OpKind::scatter_rows);
  scatter.accumulate = true;
  EXPECT_FALSE(only_writes(scatter, 0));
  EXPECT_TRUE(writable_sums(scatter).empty()) << "the gradient of an activation is not a weight's";
  EXPECT_FALSE(only_writes(op_of(OpKind::embedding_grad), 0));
  EXPECT_FALSE(only_writes(op_of(OpKind::merge_kv), 0)) << "q stays as it is";
  EXPECT_FALSE(only_writes(op_of(OpKind::adamw), 0));
  EXPECT_TRUE(only_writes(op_of(OpKind::adamw), 3)) << "the copy that compute reads";
}

TEST(OperatorTable, KnowsStatisticsOfRows) {
  Op attention = op_of(OpKind::attention);
  EXPECT_FALSE(is_statistic(attention, 1)) << "the whole matrix";
  attention.flash = true;
  EXPECT_TRUE(is_statistic(attention, 1));
  EXPECT_FALSE(is_statistic(attention, 0));
  EXPECT_TRUE(is_statistic(op_of(OpKind::head_norm), 1));
  EXPECT_FALSE(is_statistic(op_of(OpKind::gelu), 0));
}

TEST(OperatorTable, TakesGradientsBackThroughActivations) {
  for (const OperatorTraits& row : kOperators) {
    if (!row.gradient || !row.activation) continue;
    const OperatorTraits& back = traits_of(gradient_of(row.kind));
    EXPECT_TRUE(back.activation) << row.name;
    EXPECT_EQ(back.name, std::string(row.name) + "_grad");
    EXPECT_EQ(back.issued, Issued::autograd) << row.name;
    EXPECT_EQ(back.function, row.function) << row.name;
    EXPECT_EQ(back.in_slots, row.in_slots) << row.name;
  }
  EXPECT_DEATH((void)gradient_of(OpKind::fill_zero), "fill_zero has no gradient");
}

TEST(OperatorTable, FindsOperandsThatARowHasNot) {
  Op gelu = op_of(OpKind::gelu);
  gelu.in = {0};
  gelu.out = {1};
  EXPECT_EQ(operand_fault(gelu), "");
  gelu.slots = 2;
  gelu.in = {0, 2};
  EXPECT_EQ(operand_fault(gelu), "") << "in slots the last input says how many rows are there";
  gelu.slots = 0;
  EXPECT_EQ(operand_fault(gelu), "gelu has 2 inputs where its row has 1");
  gelu.in = {-1};
  EXPECT_EQ(operand_fault(gelu), "gelu has no input x");
  Op product = op_of(OpKind::matmul);
  product.in = {0, 1, -1};
  product.out = {2};
  EXPECT_EQ(operand_fault(product), "");
  product.out = {};
  EXPECT_EQ(operand_fault(product), "matmul has no output c");
  Op dispatch = op_of(OpKind::dispatch);
  dispatch.in = {0, 1};
  dispatch.out = {2};
  EXPECT_EQ(operand_fault(dispatch), "dispatch stands in 0 slots");
}

}  // namespace operators_test
}  // namespace orrery::models
