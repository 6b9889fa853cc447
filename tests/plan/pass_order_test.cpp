// Orders of passes that a user writes down.
#include "plan/spec/pass_order.h"

#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/orders.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace pass_order_test {

base::Diagnostic refused(const std::string& text) {
  const auto order = PassOrder::parse_csv(text, "order.csv");
  EXPECT_FALSE(order.has_value()) << text;
  if (order) return {};
  EXPECT_EQ(order.error().front().code, "E0124");
  EXPECT_EQ(order.error().front().where.file, "order.csv");
  return order.error().front();
}

// As torch.distributed.pipelining writes Schedule1F1B for two ranks and three micro-batches: empty cells are waiting.
constexpr const char* kOneFOneB =
    "0F0,0F1,,0B0,0F2,0B1,,0B2\n"
    ",1F0,1B0,1F1,1B1,1F2,1B2,\n";

TEST(PassOrder, ReadsATableOfPyTorchs) {
  const auto order = PassOrder::parse_csv(kOneFOneB, "order.csv");
  ASSERT_TRUE(order.has_value()) << base::render(order.error(), false);
  EXPECT_EQ(order->stages(), 2);
  EXPECT_EQ(order->chunks(), 1);
  EXPECT_EQ(order->micro_batches(), 3);
  EXPECT_FALSE(order->folds());
  EXPECT_EQ(order->rows(), (std::vector<std::string>{"0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"}));
}

TEST(PassOrder, ReadsCellsWithoutTheirStageWhereARankHasOne) {
  const auto order = PassOrder::parse_csv("# mine\nF0, F1 ,,B0,F2,B1,,B2\n\n,F0,B0,F1,B1,F2,B2\r\n", "order.csv");
  ASSERT_TRUE(order.has_value()) << base::render(order.error(), false);
  EXPECT_EQ(*order, *PassOrder::parse_csv(kOneFOneB, "order.csv"));
}

TEST(PassOrder, TakesBForTheInputsGradientWhereWeightsHaveTheirOwn) {
  const auto order = PassOrder::parse_csv("F0,B0,W0\nF0,B0,W0\n", "order.csv");
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->rows().front(), "0F0 0I0 0W0");
  const auto whole = PassOrder::parse_csv("F0,F1,B0,I1,W1\nF0,F1,B0,I1,W1\n", "order.csv");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->rows().front(), "0F0 0F1 0B0 0I1 0W1") << "with I, B is both";
}

TEST(PassOrder, SeesAVOfTwoChunks) {
  const auto order = PassOrder::parse_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "order.csv");
  ASSERT_TRUE(order.has_value()) << base::render(order.error(), false);
  EXPECT_TRUE(order->folds());
  EXPECT_EQ(order->chunks(), 2);
}

TEST(PassOrder, PointsAtTheCellThatIsNone) {
  const base::Diagnostic found = refused("0F0,0B0\n1F0, 1X0\n");
  EXPECT_EQ(found.where.line, 2);
  EXPECT_EQ(found.where.column, 6);
  EXPECT_EQ(found.where.length, 3);
  EXPECT_NE(refused("0F0,0SEND_F0,0B0\n1F0,1B0\n").help.find("messages"), std::string::npos);
  EXPECT_NE(refused("0F0,0B99999999999\n1F0,1B0\n").message.find("not a pass"), std::string::npos);
}

TEST(PassOrder, RefusesWhatNoPipelineCanDo) {
  EXPECT_NE(refused("0F0,0B0\n").message.find("at least two"), std::string::npos);
  EXPECT_NE(refused("").message.find("0 ranks"), std::string::npos);
  EXPECT_NE(refused("0F0,0F0,0B0\n1F0,1B0\n").message.find("twice"), std::string::npos);
  EXPECT_NE(refused("0B0,0F0\n1F0,1B0\n").message.find("before"), std::string::npos);
  EXPECT_NE(refused("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n").message.find("0B1 is missing on rank 0"), std::string::npos);
  EXPECT_NE(refused("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n").message.find("virtual stage 1 on rank 0"), std::string::npos);
  EXPECT_NE(refused("0F0,0B0\n1F0,1B0\n3F0,3B0\n").message.find("4 virtual stages on 3 ranks"), std::string::npos);
  // Rank 1 wants the second micro-batch first, which rank 0 makes behind the first one's gradient.
  const base::Diagnostic waits = refused("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  EXPECT_NE(waits.message.find("waits for ever at 0B0"), std::string::npos);
  EXPECT_EQ(waits.where.column, 5);
}

TEST(PassOrder, SaysNoMoreThanTenThings) {
  std::string text = "0F0,0B0\n";
  for (int i = 0; i < 100; ++i) text += "x,";
  const auto order = PassOrder::parse_csv(text, "order.csv");
  ASSERT_FALSE(order.has_value());
  EXPECT_EQ(order.error().size(), 10U);
}

std::string written(const std::vector<std::vector<Move>>& moves, const PlanSpec& spec) {
  std::string text;
  for (std::size_t s = 0; s < moves.size(); ++s) {
    for (const Move& m : moves[s]) {
      const char* kind = m.kind == Move::Kind::forward    ? "F"
                         : m.kind == Move::Kind::backward ? "I"
                         : m.kind == Move::Kind::weights  ? "W"
                                                          : nullptr;
      if (kind) text += std::to_string(spec.place_of(StageId(s), m.chunk)) + kind + std::to_string(m.micro_batch) + ",";
    }
    text += "\n";
  }
  return text;
}

// The same passes get the same messages, whoever wrote them.
TEST(PassOrder, OfABuiltInOrderIsThatOrder) {
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v})
    for (const int stages : {2, 4})
      for (const std::int64_t m : {3, 8}) {
        PlanSpec spec;
        spec.stages.order = order;
        spec.mesh.pipeline = stages;
        spec.stages.virtual_stages = spec.stages.folds() ? 2 : 1;
        const auto moves = zero_bubble(order, stages, m);
        const auto table = PassOrder::parse_csv(written(moves, spec), "order.csv");
        ASSERT_TRUE(table.has_value()) << base::render(table.error(), false);
        EXPECT_EQ(table->folds(), spec.stages.folds());
        EXPECT_EQ(custom(*table), moves) << name_of(order);
      }
}

TEST(PassOrder, IsLoweredSoundly) {
  PlanSpec spec;
  spec.stages.order = Order::custom;
  spec.stages.passes = *PassOrder::parse_csv(kOneFOneB, "order.csv");
  spec.mesh.pipeline = 2;
  spec.shape.micro_batch = 2;
  spec.shape.batch = 6;
  const Schedule schedule = lower(samples::make(spec, samples::tiny_gpt(4, 8, 16)));
  EXPECT_TRUE(check(schedule).empty());
}

TEST(PassOrder, MustFitItsPlan) {
  const auto code_of = [](void (*change)(PlanSpec&)) {
    PlanSpec spec;
    spec.stages.order = Order::custom;
    spec.stages.passes = *PassOrder::parse_csv(kOneFOneB, "order.csv");
    spec.mesh.pipeline = 2;
    spec.shape.batch = 3;
    change(spec);
    const auto plan = samples::try_make(spec, samples::tiny_gpt(4, 8, 16));
    return plan ? std::string() : plan.error().front().code;
  };
  EXPECT_EQ(code_of([](PlanSpec&) {}), "");
  EXPECT_EQ(code_of([](PlanSpec& s) { s.stages.passes = {}; }), "P111");
  EXPECT_EQ(code_of([](PlanSpec& s) { s.stages.order = Order::gpipe; }), "P111");
  EXPECT_EQ(code_of([](PlanSpec& s) { s.mesh.pipeline = 4; }), "P112");
  EXPECT_EQ(code_of([](PlanSpec& s) { s.stages.virtual_stages = 2; }), "P112");
  EXPECT_EQ(code_of([](PlanSpec& s) { s.shape.batch = 4; }), "P113");
}

}  // namespace pass_order_test
}  // namespace orrery::plan
