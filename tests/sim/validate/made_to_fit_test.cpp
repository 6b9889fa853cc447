/// What a row leaves open about memory, where the run ran but is predicted not to fit.
#include "sim/validate/made_to_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace made_to_fit_test {

using ::testing::HasSubstr;

Library one_cluster_and_stack() {
  Library out;
  out.clusters = {*testing::cluster("dgx-a100-80gb")};
  out.stacks = {testing::stack("megatron-2021")};
  return out;
}

/// 19 billion parameters on 16 devices: without recomputation, sequences of 16 a micro-batch need more than a device.
std::vector<Row> open_row(const std::string& recomputation, const std::string& micro_batch = "16") {
  const auto parsed = parse_rows(
      "results:\n- {id: a, source: s, kind: training, verified: true, family: gpt, layers: 24, hidden: 8192, heads: "
      "64, seq_len: 2048, gpus: 16, gpus_per_node: 8, tp: 8, pp: 2, dp: 1, global_batch: 64, gpu_type: "
      "A100-SXM4-80GB, stack: megatron-2021, precision_kind: fp16, iter_time_s: 20, micro_batch: " +
          micro_batch + ", recompute_kind: " + recomputation + "}\n",
      "rows.yaml");
  if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
  return *parsed;
}

Subject subject_of(const std::vector<Row>& rows) {
  auto made = Translator(one_cluster_and_stack()).translate(rows[0].setup);
  if (!made) throw std::runtime_error(base::render(made.error(), false));
  return std::move(*made);
}

double bytes_needed(const Subject& one) {
  return cost::Estimator(one.model, *one.pricing).memory_peak(one.plan, {cost::MemoryKind::needed, {}});
}

TEST(MadeToFit, KeepsThePlanAndAddsTheFewestRecomputedLayersThatFit) {
  const Subject open = subject_of(open_row("unknown"));
  EXPECT_EQ(open.plan.spec().recomputation.what, plan::Recompute::none);
  const double capacity = open.pricing->cluster().device().memory.value;
  EXPECT_GT(bytes_needed(open), capacity);
  ASSERT_NE(open.fitting, nullptr);
  EXPECT_NE(open.fitting->plan.spec().recomputation.what, plan::Recompute::none);
  EXPECT_LE(bytes_needed(*open.fitting), capacity);
  EXPECT_LE(bytes_needed(subject_of(open_row("full"))), bytes_needed(*open.fitting))
      << "no more is recomputed than must be";
  EXPECT_THAT(open.notes.back(), HasSubstr("the run ran, but is predicted to need"));
}

TEST(MadeToFit, LeavesWhatFitsAndWhatIsStated) {
  EXPECT_EQ(subject_of(open_row("unknown", "1")).fitting, nullptr) << "it fits";
  EXPECT_EQ(subject_of(open_row("none")).fitting, nullptr) << "the row says how it ran";
  std::vector<Row> died = open_row("unknown");
  died[0].setup.kind = kOutOfMemory;
  EXPECT_EQ(subject_of(died).fitting, nullptr) << "it did not fit";
}

TEST(MadeToFit, RecomputesAllBlocksWhereTheSoftwareKnowsNoNumber) {
  Library library = one_cluster_and_stack();
  library.stacks[0].can.recompute_layers = false;
  const auto open = Translator(library).translate(open_row("unknown")[0].setup);
  ASSERT_TRUE(open.has_value());
  ASSERT_NE(open->fitting, nullptr);
  EXPECT_EQ(open->fitting->plan.spec().recomputation.what, plan::Recompute::full);
  EXPECT_FALSE(open->fitting->plan.spec().recomputation.layers.has_value());
}

TEST(MadeToFit, ARowFitsIfWhatItLeavesOpenMakesItFitWhetherItRanOrDied) {
  std::vector<Row> rows = open_row("unknown");
  const auto smallest = [&] { return subject_of(rows).smallest; };
  ASSERT_NE(smallest(), nullptr);
  EXPECT_EQ(smallest()->plan.spec().recomputation.what, plan::Recompute::full);
  rows[0].setup.kind = kOutOfMemory;
  EXPECT_NE(smallest(), nullptr);
  rows = open_row("none");
  EXPECT_EQ(smallest(), nullptr) << "the row says how it ran";
}

TEST(MadeToFit, TakesZeRO1BeforeRecomputation) {
  std::vector<Row> replicas = open_row("unknown", "1");
  auto& s = replicas[0].setup;
  s.sequence = 1024;
  s.tensor = 2, s.pipeline = 2, s.data = 4;  // 4.8 billion parameters a device: their states are 88 GB
  const Subject open = subject_of(replicas);
  EXPECT_EQ(open.plan.spec().states.zero_stage, 0);
  ASSERT_NE(open.fitting, nullptr);
  EXPECT_EQ(open.fitting->plan.spec().states.zero_stage, 1);
  EXPECT_EQ(open.fitting->plan.spec().recomputation.what, plan::Recompute::none);
}

TEST(MadeToFit, TheIntervalHoldsBothPlans) {
  const std::vector<Row> rows = open_row("unknown");
  cost::Intervals intervals;
  intervals.spreads.push_back({"", true, {0.9, 1.1}, {0.3, 3}, 0});
  const cost::Validation v = validate(rows, make_cases(rows, one_cluster_and_stack()), intervals, {});
  const cost::Validation full =
      validate(open_row("full"), make_cases(open_row("full"), one_cluster_and_stack()), intervals, {});
  ASSERT_EQ(v.rows.size(), 1U);
  ASSERT_TRUE(v.rows[0].time_s.has_value());
  EXPECT_DOUBLE_EQ(v.rows[0].time_s->low, 0.9 * v.rows[0].predicted_s);
  EXPECT_GT(v.rows[0].time_s->high, 1.1 * v.rows[0].predicted_s);
  EXPECT_LE(v.rows[0].time_s->high, full.rows[0].time_s->high);
}

TEST(MadeToFit, PredictsTheOtherPlanWhereTheOneWithoutCannotHaveRun) {
  const std::vector<Row> rows = open_row("unknown");
  const auto predicted = [&](const cost::Interval& memory) {
    cost::Intervals intervals;
    intervals.spreads.push_back({"", true, {0.9, 1.1}, memory, 0});
    return validate(rows, make_cases(rows, one_cluster_and_stack()), intervals, {}).rows.at(0);
  };
  const cost::ValidatedRow unsure = predicted({0.3, 3}), sure = predicted({0.99, 1.01});
  EXPECT_GT(sure.predicted_s, unsure.predicted_s) << "it recomputes";
  EXPECT_LT(sure.predicted_bytes, unsure.predicted_bytes);
  EXPECT_GT(*unsure.fits_probability, 0.5) << "what the row leaves open makes it fit";
  EXPECT_GT(*sure.fits_probability, 0.5);
  EXPECT_THAT(sure.plan, HasSubstr("recompute"));
  EXPECT_DOUBLE_EQ(sure.time_s->high, 1.1 * sure.predicted_s) << "the interval holds both all the same";
  EXPECT_DOUBLE_EQ(sure.time_s->low, 0.9 * unsure.predicted_s);
}

}  // namespace made_to_fit_test
}  // namespace orrery::sim
