/// Fits with a fold left out, and intervals of what is left: quantiles by hand, and that nothing of a fold leaks into
/// what is said of it.
#include "sim/validate/cross_validate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace cross_validate_test {

TEST(Spread, IsTheTenthAndTheNinetiethPercentile) {
  std::vector<LogResidual> residuals;
  for (int i = 0; i <= 10; ++i) residuals.push_back({std::log(1 + 0.1 * i), "s", "a", false});
  // Of equal weights the k-th of 11 values stands at (k + 1/2) / 11: the tenth percentile between the first and the
  // second.
  const double place = 0.1 * 11 - 0.5;
  const cost::Interval spread = spread_over(residuals, "a", false);
  EXPECT_NEAR(spread.low, std::exp(place * std::log(1.1)), 1e-12);
  EXPECT_NEAR(spread.high, std::exp(std::log(2) - place * (std::log(2) - std::log(1.9))), 1e-12);
  EXPECT_EQ(spread_over({}, "a", false), (cost::Interval{1, 1}));
}

TEST(Spread, ListensMoreToRowsOfTheSameSoftware) {
  std::vector<LogResidual> residuals;
  for (int i = 0; i < 20; ++i) {
    residuals.push_back({0.01 * (i - 10), "narrow", "a", true});
    residuals.push_back({0.1 * (i - 10), "wide", "b", true});
  }
  const auto width = [&](const char* stack) {
    const cost::Interval i = spread_over(residuals, stack, true);
    return std::log(i.high / i.low);
  };
  EXPECT_LT(width("a"), width("c"));
  EXPECT_LT(width("c"), width("b"));
}

TEST(Spread, ASourceOfManyRowsDoesNotDecideAlone) {
  std::vector<LogResidual> residuals;
  for (int i = 0; i < 400; ++i) residuals.push_back({0.0, "bulk", "a", true});
  for (int i = 0; i < 25; ++i) residuals.push_back({0.5, "small", "b", true});
  EXPECT_NEAR(spread_over(residuals, "c", true).high, std::exp(0.5), 1e-9) << "20 against 5: a fifth lies at 0.5";
}

TEST(Spread, OverSourcesHoldsFourOfFiveUnseenOnes) {
  std::vector<LogResidual> residuals;
  for (int i = 1; i <= 9; ++i) residuals.push_back({std::log(i), fmt::format("s{}", i), "a", false});
  // Of ten sources, the tenth anywhere among them, one is the lowest and one the highest.
  EXPECT_NEAR(spread_over_sources(residuals, false).low, 1, 1e-12);
  EXPECT_NEAR(spread_over_sources(residuals, false).high, 9, 1e-12);
  for (int i = 0; i < 100; ++i) residuals.push_back({std::log(5), "s5", "a", false});
  EXPECT_NEAR(spread_over_sources(residuals, false).high, 9, 1e-12) << "a source of many rows counts as one";
  for (int i = 10; i <= 29; ++i) residuals.push_back({std::log(5), fmt::format("s{}", i), "a", false});
  EXPECT_LT(spread_over_sources(residuals, false).high, 9) << "of 29 sources the highest is beyond the ninetieth";
  EXPECT_EQ(spread_over_sources({}, false), (cost::Interval{1, 1}));
}

constexpr const char* kStack = "megatron-2021";

cost::Stack stack() {
  cost::Stack out = testing::stack(kStack);
  for (cost::Parameter& p : out.parameters)
    p.source =
        p.name == "stack.host_op_time" || p.name == "stack.elementwise_passes" ? "coarse grid over the rows" : "fixed";
  return out;
}

Library library() {
  Library out;
  out.clusters = {*testing::cluster("dgx-a100-80gb")};
  out.stacks = {stack()};
  return out;
}

/// Three models, each from `sources[i]`, two batches of each; measured times are multiples of a constant.
std::vector<Row> rows(const std::vector<std::string>& sources, double first_measured) {
  std::string text = "results:\n";
  int id = 0;
  for (std::size_t i = 0; i < 3; ++i)
    for (const int micro : {1, 4})
      text += fmt::format(
          "- {{id: r{0}, source: {1}, kind: training, verified: true, family: gpt, layers: 24, hidden: {2}, heads: 16, "
          "seq_len: "
          "1024, gpus: 8, gpus_per_node: 8, tp: 1, pp: 1, dp: 8, micro_batch: {3}, global_batch: {4}, gpu_type: "
          "A100-SXM4-80GB, "
          "stack: {5}, recompute_kind: none, precision_kind: fp16, iter_time_s: {6}}}\n",
          id, sources[i], 1024 << i, micro, 8 * micro, kStack,
          id == 0 ? first_measured : 0.05 * micro * static_cast<double>(std::size_t{1} << 2 * i)),
          ++id;
  auto parsed = parse_rows(text, "rows.yaml");
  if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
  return *parsed;
}

cost::CrossValidation run(const std::vector<Row>& all, const std::function<bool()>& go_on = {}) {
  const Cases cases = make_cases(all, library());
  StackFitter fitter(all, cases, *stack_families({stack()}));
  return cross_validate(all, cases, fitter, go_on);
}

TEST(CrossValidation, LeavesOutASourceAtATime) {
  const cost::CrossValidation v = run(rows({"x", "y", "z"}, 0.06));
  ASSERT_EQ(v.folds.size(), 3U);
  EXPECT_EQ(v.rows.size(), 6U);
  EXPECT_EQ(v.folds[0].fold, "x");
  EXPECT_FALSE(v.folds[0].by_model);
  EXPECT_EQ(v.left_out.count, 6);
  EXPECT_LE(v.in_sample.mean, v.left_out.mean + 1e-9);
  EXPECT_TRUE(v.complete);
}

TEST(CrossValidation, OfOneSourceLeavesOutAModelAtATime) {
  const cost::CrossValidation v = run(rows({"x", "x", "x"}, 0.06));
  ASSERT_EQ(v.folds.size(), 3U);
  EXPECT_TRUE(v.folds[0].by_model);
  EXPECT_THAT(v.folds[0].fold, ::testing::HasSubstr("24 x 1024 of x"));
  EXPECT_EQ(v.folds[0].rows, 2U);
}

TEST(CrossValidation, WhatIsSaidOfAFoldDoesNotDependOnWhatWasMeasuredInIt) {
  const cost::CrossValidation a = run(rows({"x", "y", "z"}, 0.06)), b = run(rows({"x", "y", "z"}, 0.6));
  for (std::size_t i = 0; i < 2; ++i) {  // both rows of the fold whose first value changed
    EXPECT_EQ(a.rows[i].left_out_s, b.rows[i].left_out_s);
    EXPECT_EQ(a.rows[i].interval, b.rows[i].interval);
  }
  EXPECT_NE(a.rows[0].in_sample_s, b.rows[0].in_sample_s) << "the test has no power if the value never matters";
  EXPECT_NE(a.rows[2].interval, b.rows[2].interval) << "nor if it does not reach the other folds";
}

TEST(CrossValidation, StopsWhenToldAndSaysSo) {
  int asked = 0;
  const cost::CrossValidation v = run(rows({"x", "y", "z"}, 0.06), [&] { return ++asked < 30; });
  EXPECT_FALSE(v.complete);
  EXPECT_LT(v.folds.size(), 3U);
}

TEST(CrossValidation, WithoutMeasurementsHasNothingToSay) {
  std::vector<Row> bare = rows({"x", "y", "z"}, 0.06);
  for (Row& row : bare) row.measured = {};
  const cost::CrossValidation v = run(bare);
  EXPECT_TRUE(v.rows.empty());
  EXPECT_TRUE(std::isnan(v.inside));
}

TEST(Intervals, HaveASpreadForEachStackAndForAnyOther) {
  const std::vector<Row> all = rows({"x", "y", "z"}, 0.06);
  const Cases cases = make_cases(all, library());
  StackFitter fitter(all, cases, *stack_families({stack()}));
  const cost::Intervals made = intervals_from(all, cases, cross_validate(all, cases, fitter), {stack()}, {});
  ASSERT_EQ(made.spreads.size(), 4U);
  const auto own = cost::spread_of(made, kStack, false);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->rows, 6);
  EXPECT_LT(own->time.low, own->time.high);
  EXPECT_TRUE(cost::spread_of(made, "another", true).has_value());
  ASSERT_EQ(made.grounds.size(), 1U);
  const clusters::Device& device = cases.ready.front().subject.pricing->cluster().device();
  EXPECT_EQ(made.grounds.front(), cost::ground_of(kStack, {&device}));
}

TEST(Intervals, OfStrangersAreThoseOfSoftwareWithoutAStackAlone) {
  std::vector<Row> all = rows({"x", "y", "z"}, 0.06);
  for (std::size_t i = 0; i < 4; ++i) all[i].setup.stack = "nobodys";
  Library known = library();
  known.stacks.push_back(testing::stack(cost::kGenericEager));
  const auto spreads = [&] {
    const Cases cases = make_cases(all, known);
    return std::pair(strangers_spreads(all, cases, validate(all, cases)), validate(all, cases));
  };
  const auto [made, predicted] = spreads();
  ASSERT_EQ(made.size(), 2U);
  double low = 1e9, high = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const double factor = *predicted.rows.at(i).measured_s / predicted.rows.at(i).predicted_s;
    low = std::min(low, factor), high = std::max(high, factor);
  }
  EXPECT_EQ(made[0].stack, cost::kStrangers);
  EXPECT_EQ(made[0].memory, cost::kNothingSeen);
  EXPECT_NEAR(made[0].time.low, low, 1e-3) << "of two sources the lowest";
  EXPECT_NEAR(made[0].time.high, high, 1e-3);
  all[5].measured.seconds = 10 * *all[5].measured.seconds;
  EXPECT_EQ(spreads().first[0].time, made[0].time) << "what has a stack of its own says nothing";
  all[0].measured.seconds = 10 * high * *all[0].measured.seconds;
  EXPECT_GT(spreads().first[0].time.high, made[0].time.high);
}

// Runs of language models say nothing about tables.
TEST(Intervals, OfAKindThatNoRunMeasuredAreThoseOfItsUnknownSoftware) {
  const std::vector<Row> all = rows({"x", "y", "z"}, 0.06);
  const Cases cases = make_cases(all, library());
  StackFitter fitter(all, cases, *stack_families({stack()}));
  cost::Stack tables = stack();
  tables.name = "tables";
  tables.parameters.push_back({"stack.lookup_passes", 1, cost::Unit::number, "by hand"});
  const cost::Spread one{cost::kGenericRecommender, false, {0.5, 2}, {0.75, 1.5}, 0};
  const cost::Spread several{cost::kGenericRecommender, true, {0.4, 3}, {0.7, 1.75}, 0};
  const cost::Spread eager{cost::kGenericEager, false, {0.1, 9}, {0.1, 9}, 0};
  const cost::Intervals made =
      intervals_from(all, cases, cross_validate(all, cases, fitter), {stack(), tables}, {eager, one, several});
  EXPECT_EQ(cost::spread_of(made, "tables", false)->time, one.time);
  EXPECT_EQ(cost::spread_of(made, "tables", false)->memory, one.memory);
  EXPECT_EQ(cost::spread_of(made, "tables", true)->memory, several.memory);
  EXPECT_NE(cost::spread_of(made, kStack, false)->time, eager.time) << "it has runs of its own";
  EXPECT_EQ(cost::spread_of(made, kStack, false)->memory, eager.memory) << "of which none states a peak";
}

TEST(Intervals, TwoRunsOfAKindAreNoGround) {
  std::vector<Row> two = rows({"x", "y", "z"}, 0.06);
  two.resize(2);
  EXPECT_TRUE(grounds_of(two, make_cases(two, library())).empty());
}

}  // namespace cross_validate_test
}  // namespace orrery::sim
