/// Choosing stacks' numbers: the search on a grid, who follows whom, a fit that finds what made the rows, and stack
/// files rewritten in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cmath>

#include "sim/validate/fit.h"
#include "sim/validate/grid_search.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace fit_stacks_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GridSearch, FindsTheLeastOfABowl) {
  const auto bowl = [](const GridPoint& p) {
    const double x = static_cast<double>(p[0]) - 3, y = static_cast<double>(p[1]) - 5;
    return x * x + 2 * y * y;
  };
  const GridSearch found = grid_search({8, 9}, {0, 0}, bowl);
  EXPECT_THAT(found.best, ElementsAre(3, 5));
  EXPECT_DOUBLE_EQ(found.value, 0);
  EXPECT_TRUE(found.complete);
}

TEST(GridSearch, FollowsANarrowValleyThatNoCoordinateFollows) {
  // Along either axis alone every step from the diagonal is uphill.
  const auto valley = [](const GridPoint& p) {
    const double across = static_cast<double>(p[0]) - static_cast<double>(p[1]);
    return 100 * across * across - static_cast<double>(p[0] + p[1]);
  };
  EXPECT_THAT(grid_search({6, 6}, {0, 0}, valley).best, ElementsAre(5, 5));
}

TEST(GridSearch, LeavesWhatNothingDependsOnWhereItBegan) {
  const auto first_only = [](const GridPoint& p) { return std::abs(static_cast<double>(p[0]) - 2); };
  EXPECT_THAT(grid_search({5, 5}, {0, 3}, first_only).best, ElementsAre(2, 3));
}

TEST(GridSearch, StopsWhenToldAndSaysSo) {
  int asked = 0;
  const GridSearch found = grid_search(
      {50}, {0}, [](const GridPoint& p) { return -static_cast<double>(p[0]); }, [&] { return ++asked < 4; });
  EXPECT_FALSE(found.complete);
  EXPECT_LE(found.best[0], 4U);
}

cost::Stack stack(const std::string& name, const std::string& host_source, const std::string& passes_source) {
  cost::Stack out = testing::stack("megatron-2021");
  out.name = name;
  for (cost::Parameter& p : out.parameters) {
    p.source = "kept";  // the file's own numbers are chosen over rows
    if (p.name == "stack.host_op_time") p.source = host_source;
    if (p.name == "stack.elementwise_passes") p.source = passes_source;
  }
  return out;
}

TEST(StackFamilies, TellFromTheirNumbersWhichSourcesTheyWereFittedTo) {
  const std::vector<cost::Stack> stacks = {
      stack("a", "coarse grid over 9 published rows: A paper (one, two), Another (2024)", "assumption"),
      stack("b", "as a: the same hosts", "assumption"),
      stack("c", "assumption", "NVIDIA, a page on A paper (one, two)")};
  for (const char* fitted : {"a", "b"}) {
    EXPECT_TRUE(was_fitted_to(stacks, fitted, "A paper (one, two), table 3"));
    EXPECT_TRUE(was_fitted_to(stacks, fitted, "Another (2024)"));
    EXPECT_FALSE(was_fitted_to(stacks, fitted, "Another (2025)"));
    EXPECT_FALSE(was_fitted_to(stacks, fitted, "A paper"));
  }
  EXPECT_FALSE(was_fitted_to(stacks, "c", "A paper (one, two), table 3"));
  EXPECT_FALSE(was_fitted_to(stacks, "d", "Another (2024)"));
}

TEST(StackFamilies, AreStacksWhoseNumbersFollowEachOther) {
  const auto families =
      stack_families({stack("a", "assumption", "assumption"), stack("b", "coarse grid over the rows", "assumption"),
                      stack("c", "as b: the same framework", "as a")});
  ASSERT_TRUE(families.has_value());
  ASSERT_EQ(families->size(), 2U);
  EXPECT_THAT((*families)[0].stacks, ElementsAre("a")) << "c follows a number of a that is not free";
  EXPECT_THAT((*families)[0].free, IsEmpty());
  EXPECT_THAT((*families)[1].stacks, ElementsAre("b", "c"));
  EXPECT_THAT((*families)[1].free, ElementsAre(NumberName("b", "stack.host_op_time")));
  EXPECT_EQ((*families)[1].follows.size(), 2U);
}

TEST(StackFamilies, RefuseANumberThatHasNoGrid) {
  cost::Stack odd = stack("odd", "assumption", "assumption");
  for (cost::Parameter& p : odd.parameters)
    if (p.name == "stack.dispatch_overhead") p.source = "coarse grid over the rows";
  const auto families = stack_families({odd});
  ASSERT_FALSE(families.has_value());
  EXPECT_THAT(families.error().front().message, HasSubstr("stack.dispatch_overhead"));
}

/// Rows of runs that are what the simulator says with other numbers than the stack has.
std::vector<Row> rows_made_with(const std::vector<cost::Stack>& stacks, const StackNumbers& truth) {
  std::string text = "results:\n";
  int id = 0;
  for (const auto& [layers, hidden, micro] : {std::tuple(24, 512, 1), std::tuple(24, 1024, 1), std::tuple(24, 2048, 4),
                                              std::tuple(12, 4096, 2), std::tuple(8, 8192, 1), std::tuple(30, 3072, 2)})
    text += fmt::format(
        "- {{id: r{}, source: s{}, kind: training, verified: true, family: gpt, layers: {}, hidden: {}, heads: 16, "
        "seq_len: 2048, gpus: 8, gpus_per_node: 8, tp: 1, pp: 1, dp: 8, micro_batch: {}, global_batch: {}, gpu_type: "
        "A100-SXM4-80GB, stack: megatron-2021, recompute_kind: none, precision_kind: fp16, iter_time_s: 1}}\n",
        id, id % 2, layers, hidden, micro, 8 * micro),
        ++id;
  auto rows = parse_rows(text, "rows.yaml");
  if (!rows) throw std::runtime_error(base::render(rows.error(), false));
  Library library;
  library.clusters = {*testing::cluster("dgx-a100-80gb")};
  library.stacks = stacks;
  const Cases cases = make_cases(*rows, library);
  Predictor predictor(truth);
  for (const Case& one : cases.ready) (*rows)[one.row].measured.seconds = predictor.predict(one).step_time;
  return *rows;
}

TEST(StackFit, FindsTheNumbersThatMadeTheRows) {
  const std::vector<cost::Stack> stacks{
      stack("megatron-2021", "coarse grid over the rows", "coarse grid over the rows")};
  const NumberName host("megatron-2021", "stack.host_op_time"), passes("megatron-2021", "stack.elementwise_passes");
  const StackNumbers truth{{host, 120e-6}, {passes, 3}};
  const std::vector<Row> rows = rows_made_with(stacks, truth);
  Library library;
  library.clusters = {*testing::cluster("dgx-a100-80gb")};
  library.stacks = stacks;
  const Cases cases = make_cases(rows, library);
  StackFitter fitter(rows, cases, *stack_families(stacks));
  const auto fits = fit_stacks(fitter, rows, cases, stacks);
  ASSERT_EQ(fits.size(), 1U);
  EXPECT_EQ(fits[0].rows, 6U);
  EXPECT_GT(fits[0].error_before, 0.05);
  EXPECT_LT(fits[0].error_after, 1e-9);
  for (const cost::FittedNumber& n : fits[0].numbers) {
    EXPECT_DOUBLE_EQ(n.after, truth.at({n.stack, n.parameter})) << n.parameter;
    EXPECT_THAT(n.source, HasSubstr("6 published rows: s0, s1"));
  }
}

TEST(StackFit, WithoutRowsBelievesWhatIsUsual) {
  const std::vector<cost::Stack> stacks{stack("megatron-2021", "coarse grid over the rows", "assumption")};
  const NumberName host("megatron-2021", "stack.host_op_time");
  const std::vector<Row> rows = rows_made_with(stacks, {{host, 120e-6}});
  Library library;
  library.clusters = {*testing::cluster("dgx-a100-80gb")};
  library.stacks = stacks;
  const Cases cases = make_cases(rows, library);
  StackFitter fitter(rows, cases, *stack_families(stacks));
  EXPECT_EQ(fitter.fit(0, [](std::size_t) { return false; }), fitter.usual(0));
  EXPECT_NE(fitter.fit(0, [](std::size_t) { return true; }), fitter.usual(0));
}

TEST(RewrittenStack, ChangesTheNumberAndItsSourceAndNothingElse) {
  const std::string text =
      "# A comment that stays.\nstack: x\nparameters:\n  stack.host_op_time: {value: 70 us, source: \"coarse grid\"}  "
      "# why\n"
      "  stack.score_passes: {value: 1.5, source: \"as y\"}\n";
  const auto changed = rewritten_stack(text, "x.yaml", {{"x", "stack.host_op_time", 70e-6, 85e-6, "coarse \"grid\""}});
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(*changed,
            "# A comment that stays.\nstack: x\nparameters:\n  stack.host_op_time: {value: 85 us, source: \"coarse "
            "\\\"grid\\\"\"}  # why\n  stack.score_passes: {value: 1.5, source: \"as y\"}\n");
  const auto missing = rewritten_stack(text, "x.yaml", {{"x", "stack.step_overhead", 0, 1, ""}});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().front().message, HasSubstr("stack.step_overhead"));
}

TEST(RewrittenStack, HasRowsOfSeveralLinesWhereTheyAreLong) {
  const std::string long_source =
      "coarse grid over 38 published rows: MLPerf Training v3.0 (gpt3), NVIDIA DGX Cloud "
      "benchmarking recipes and two more";
  const std::string next = "  stack.score_passes: {value: 1.5, source: \"as y\"}\n";
  const std::string text = "stack: x\nparameters:\n  stack.host_op_time: {value: 70 us, source: \"a\"}\n" + next;
  const auto longer = rewritten_stack(text, "x.yaml", {{"x", "stack.host_op_time", 70e-6, 85e-6, long_source}});
  ASSERT_TRUE(longer.has_value());
  EXPECT_EQ(*longer,
            "stack: x\nparameters:\n"
            "  stack.host_op_time: {value: 85 us, source: \"coarse grid over 38 published rows: MLPerf Training v3.0 "
            "(gpt3), NVIDIA\n    DGX Cloud benchmarking recipes and two more\"}\n" +
                next);
  const auto again = rewritten_stack(*longer, "x.yaml", {{"x", "stack.host_op_time", 85e-6, 70e-6, "a"}});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, text);
}

TEST(RewrittenStack, ReadsBackAsTheNumbersItWasGiven) {
  const std::string text = testing::text_of("cost/stacks/megatron-2021.yaml");
  for (const Choice& choice : choices())
    for (const double value : choice.grid) {
      if (choice.parameter != "stack.host_op_time") continue;
      const auto changed = rewritten_stack(text, "x.yaml", {{"megatron-2021", choice.parameter, 0, value, "s"}});
      ASSERT_TRUE(changed.has_value());
      const auto read = cost::parse_stack(*changed, "x.yaml");
      ASSERT_TRUE(read.has_value()) << *changed;
      for (const cost::Parameter& p : read->parameters)
        if (p.name == choice.parameter) {
          EXPECT_EQ(p.value, value);
        }
    }
}

}  // namespace fit_stacks_test
}  // namespace orrery::sim
