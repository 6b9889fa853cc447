/// A stack's file: what is written reads back, and what a fitted one says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/fit/least_squares.h"
#include "cost/parameters/intervals.h"
#include "cost/parameters/stack.h"

namespace orrery::cost {
namespace stack_file_test {

constexpr const char* kStack = R"(stack: ours
generic: true
flash: true
host_inline: false
zero_gradients: false
with_zero_3: deepspeed
within_node: theirs
usual: {sequence_parallel: true, chunk_layers: 3}
can: {zero_stages: [0, 2], pipeline: false, gpipe: false, recompute_layers: false, flash_from: hopper}
recompute_whole_layer: true
overlap: {tensor: false, data: true, pipeline: false, gradients: true, whole_gradients: true}
memory: {reported: reserved, loss_copies: 2, keeps_gathered: true, gathers_rows: true, fragmentation: 0.25, stuck: 0.05,
  gradient_bytes: 2, saves_rounded: true, rounded_weights: beside, weighs_in_experts: true, gathers_masters: true,
  composes_norms: true, wide_sums: true, loss_apart: true}
parameters:
  stack.host_op_time: {value: 61.5 us, source: "a \"test\""}
  stack.matmul_share: {value: 0.8125, source: b}
fitted: {like: theirs, rows: 16, median_error: 0.04, p90_error: 0.2, time: {low: 0.9, high: 1.25},
  memory: {low: 0.95, high: 1.1}}
sources: [somebody]
)";

TEST(Capabilities, OfAStageThatDoesNotRunInAPipelineTheNextBelowDoes) {
  Capabilities can;
  EXPECT_EQ(can.zero_in_pipeline(3), 3);
  can.pipelined_zero_stages = {0, 1};
  EXPECT_EQ(can.zero_in_pipeline(3), 1);
  EXPECT_EQ(can.zero_in_pipeline(0), 0);
  can.zero_stages = can.pipelined_zero_stages = {0};
  EXPECT_EQ(can.zero_in_pipeline(1), 1) << "the software has it nowhere: a row that states it was another's";
  can.zero_stages = {2, 3};
  can.pipelined_zero_stages = {};
  EXPECT_EQ(can.zero_in_pipeline(2), 2) << "nothing is known to run";
}

TEST(StackFile, ReadsBackAsItWasWritten) {
  const auto stack = parse_stack(kStack, "ours.yaml");
  ASSERT_TRUE(stack.has_value()) << base::render(stack.error(), false);
  const std::string text = write_stack(*stack, {"by hand"});
  const auto again = parse_stack(text, "ours.yaml");
  ASSERT_TRUE(again.has_value()) << base::render(again.error(), false) << text;
  EXPECT_EQ(write_stack(*again, {"by hand"}), text);
  EXPECT_EQ(again->parameters, stack->parameters);
  EXPECT_EQ(again->by_zero[3], "deepspeed");
  EXPECT_EQ(again->within_node, "theirs");
  EXPECT_EQ(again->can, stack->can);
  EXPECT_EQ(again->usual, (Practice{true, 3}));
  EXPECT_EQ(again->can.zero_stages, (std::vector<int>{0, 2}));
  EXPECT_EQ(again->can.pipelined_zero_stages, (std::vector<int>{0, 2})) << "not stated: as without a pipeline";
  EXPECT_EQ(again->can.flash_from, clusters::Architecture::hopper);
  EXPECT_FALSE(again->zero_gradients);
  EXPECT_TRUE(again->overlap_gradients);
  EXPECT_TRUE(again->overlap_whole);
  EXPECT_TRUE(again->memory.keeps_gathered);
  EXPECT_TRUE(again->memory.gathers_rows);
  EXPECT_EQ(again->memory.gradient_bytes, 2);
  EXPECT_EQ(again->memory.rounded_weights, RoundedWeights::beside);
  EXPECT_TRUE(again->memory.saves_rounded && again->memory.weighs_in_experts && again->memory.gathers_masters);
  EXPECT_TRUE(again->memory.composes_norms && again->memory.wide_sums && again->memory.loss_apart);
  EXPECT_FALSE(again->can.recompute_layers);
  EXPECT_FALSE(again->memory.composes_gates || again->memory.repeats_keys);
  EXPECT_EQ(again->memory.fragmentation, 0.25);
  ASSERT_TRUE(again->fitted.has_value());
  EXPECT_EQ(again->fitted->rows, 16);
  EXPECT_EQ(again->software(), "theirs");
  EXPECT_EQ(again->fitted->time, (Interval{0.9, 1.25}));
}

TEST(StackFile, SaysWhatItsPredictionsRestOn) {
  Stack stack = *parse_stack(kStack, "ours.yaml");
  Intervals known;
  known.spreads = {{"", true, {0.5, 2}, {0.8, 1.5}, 0}, {"theirs", true, {0.9, 1.125}, {0.8, 1.5}, 16}};
  EXPECT_EQ(basis_of(known, stack), Basis::calibrated);
  EXPECT_THAT(basis_text(known, stack, true), ::testing::HasSubstr("16 runs"));
  EXPECT_EQ(spread_of(known, stack, true)->time, (Interval{0.9, 1.25}));
  stack.fitted.reset();
  EXPECT_EQ(basis_of(known, stack), Basis::generic);
  stack.generic = false;
  EXPECT_EQ(basis_of(known, stack), Basis::uncalibrated);
  stack.name = "theirs";
  EXPECT_EQ(basis_of(known, stack), Basis::published);
  EXPECT_EQ(basis_of(known, stack, true), Basis::generic) << "taken for another";
  EXPECT_THAT(basis_text(known, stack, true), ::testing::HasSubstr("16 published runs"));
}

TEST(FitsProbability, IsAHalfAtTheMedianAndANinthAtTheTenthPercentile) {
  EXPECT_NEAR(fits_probability(80, 80, {0.8, 1.25}), 0.5, 1e-9);
  EXPECT_NEAR(fits_probability(80, 100, {0.8, 1.25}), 0.9, 1e-9);
  EXPECT_NEAR(fits_probability(80, 64, {0.8, 1.25}), 0.1, 1e-9);
  EXPECT_NEAR(fits_probability(80, 80, {1, 1.5625}), 0.1, 1e-9) << "measured peaks lie above the predicted";
  EXPECT_EQ(fits_probability(100, 1, {1, 1}), 0);
}

TEST(MostThatFits, IsWhatFitsWithThatProbability) {
  for (const Interval& factors : {Interval{0.8, 1.25}, Interval{1, 1}, Interval{0.75, 1.585}})
    for (const double probability : {0.05, 0.5, 0.95, 0.999})
      EXPECT_NEAR(fits_probability(most_that_fits(80, factors, probability), 80, factors), probability, 1e-9);
  EXPECT_NEAR(most_that_fits(80, {0.8, 1.25}, 0.9), 64, 1e-6);
  EXPECT_NEAR(most_that_fits(80, {0.8, 1.25}, 0.1), 100, 1e-6) << "a job may accept what will hardly fit";
}

// y = a x with a near 1: without an observation the others alone decide.
TEST(LeftOneOut, IsWhatTheOthersTell) {
  const std::vector<double> measured{2, 2, 2, 4};
  const Residuals residuals = [&](const std::vector<double>& theta) {
    std::vector<double> out;
    for (const double m : measured) out.push_back(theta[0] - std::log(m));
    return out;
  };
  const std::vector<Unknown> unknowns{{0, 100, 0, 1000}};
  const Solved solved = least_squares(unknowns, {1, 1, 1, 1}, residuals, 1.5, 20);
  const LeftOneOut left = left_one_out(unknowns, {1, 1, 1, 1}, residuals, 1.5, solved.theta);
  ASSERT_EQ(left.theta.size(), 4U);
  EXPECT_NEAR(std::exp(left.theta[3][0]), 2, 0.01);
  EXPECT_GT(left.theta[0][0], left.theta[3][0]);
  EXPECT_GT(left.covariance[0][0], 0);
}

}  // namespace stack_file_test
}  // namespace orrery::cost
