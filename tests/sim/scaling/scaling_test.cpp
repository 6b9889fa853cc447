// Scaling studies: points, causes, what is held, where growth pays, and the ways to a deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "sim/scaling/figures.h"
#include "sim/scaling/measured.h"
#include "sim/scaling/study.h"
#include "sim/search/search.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace scaling_test {

using ::testing::HasSubstr;

StudyJob gpt2_job(std::int64_t batch = 64) {
  plan::Job job;
  job.batch = batch, job.sequence = 1024;
  job.precision = models::DType::bf16;
  job.bounds.mesh.pipeline = {1};
  return {job, testing::model("gpt2-124m"), testing::cluster("hgx-h100"), testing::stack("megatron-core")};
}

cost::ScalingStudy studied(const StudyJob& job, StudyOptions options) {
  auto study = scaling_study({job}, options);
  if (!study) throw std::runtime_error(base::render(study.error(), false));
  return *study;
}

double sum_of(const cost::ByCause& causes) {
  return std::accumulate(causes.begin(), causes.end(), 0.0);
}

/// A series of made-up points: {devices, tokens/s}.
cost::ScalingSeries series_with(const std::vector<std::pair<int, double>>& rates) {
  cost::ScalingSeries series;
  for (const auto& [devices, rate] : rates) {
    cost::ScalingPoint& p = series.points.emplace_back();
    p.devices = devices;
    p.best = cost::Prediction{};
    p.best->spec.mesh.data = devices;
    p.best->tokens_per_s = rate;
    p.best->step_time_s = 1000 / rate;
    p.best->breakdown.forward = p.best->step_time_s;
  }
  derive(series, 0.5);
  return series;
}

TEST(ScalingStudy, PlansEachSizeAsTheSearchDoes) {
  const StudyJob job = gpt2_job();
  const cost::ScalingStudy study = studied(job, {.sizes = {8, 2}});
  ASSERT_EQ(study.series.size(), 1U);
  const auto& points = study.series[0].points;
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].devices, 2) << "sizes ascend";
  for (const cost::ScalingPoint& point : points) {
    const auto cluster = testing::cluster("hgx-h100", point.devices);
    const cost::SearchResult found = search(job.model, cluster, job.job, cost::Prices(cluster, job.stacks), {.top = 1});
    EXPECT_EQ(point.best->spec, found.plans.front().spec);
    EXPECT_EQ(point.best->step_time_s, found.plans.front().step_time_s);
  }
}

TEST(ScalingStudy, CausesSumToDeviceTimeAndWhatTheyAddToItsChange) {
  StudyJob job = gpt2_job(96);
  job.job.bounds.mesh.pipeline = {};
  const cost::ScalingStudy study = studied(job, {.sizes = {1, 2, 4, 8, 16, 32}, .strong = true, .weak = true});
  ASSERT_EQ(study.series.size(), 2U);
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& point : series.points) {
      ASSERT_TRUE(point.best);
      const double all = 1 / point.tokens_per_s_per_device;
      EXPECT_NEAR(sum_of(point.seconds_by_cause), all, 1e-12 * all);
      const double scaled = sum_of(point.seconds_by_cause) * point.best->tokens_per_s / point.devices;
      EXPECT_NEAR(scaled, 1, 1e-12);
      // The parts are those of the step, not scaled to fit.
      const cost::Breakdown& b = point.best->breakdown;
      for (const auto& [cause, seconds] : {std::pair{cost::Cause::compute, b.forward + b.backward},
                                           {cost::Cause::bubble, b.bubble},
                                           {cost::Cause::imbalance, b.imbalance},
                                           {cost::Cause::contention, b.contention}}) {
        const double shown = point.seconds_by_cause.at(static_cast<std::size_t>(cause)) *
                             static_cast<double>(point.batch * series.sequence);
        EXPECT_NEAR(shown, seconds * point.devices, 1e-6 * seconds * point.devices);
      }
      if (!point.before) continue;
      const cost::ScalingPoint& before = series.points[*point.before];
      EXPECT_NEAR(sum_of(point.seconds_added), all - 1 / before.tokens_per_s_per_device, 1e-12 * all);
      EXPECT_NEAR(sum_of(point.efficiency_lost), before.efficiency - point.efficiency, 1e-12);
    }
}

TEST(ScalingStudy, OfContextParallelismTellsItsMessagesFromTensorParallelisms) {
  StudyJob job = gpt2_job(8);
  job.job.sequence = 1024;
  job.job.bounds.mesh.context = {2};
  job.job.bounds.mesh.tensor = {2};
  job.job.bounds.mesh.data = {2};
  const cost::ScalingStudy study = studied(job, {.sizes = {8}});
  const cost::ScalingPoint& point = study.series[0].points[0];
  ASSERT_TRUE(point.best) << point.reason;
  EXPECT_GT(point.seconds_by_cause[static_cast<std::size_t>(cost::Cause::context)], 0);
  EXPECT_GT(point.seconds_by_cause[static_cast<std::size_t>(cost::Cause::tensor)], 0);
}

TEST(ScalingStudy, WeakScalingGrowsTheBatchFromTheSmallestSize) {
  const cost::ScalingStudy study = studied(gpt2_job(24), {.sizes = {2, 4, 8}, .strong = false, .weak = true});
  ASSERT_EQ(study.series.size(), 1U);
  std::vector<std::int64_t> batches;
  for (const cost::ScalingPoint& point : study.series[0].points) {
    batches.push_back(point.batch);
    EXPECT_EQ(point.best->spec.shape.batch, point.batch);
  }
  EXPECT_EQ(batches, (std::vector<std::int64_t>{24, 48, 96}));
}

TEST(ScalingStudy, WeakScalingOfABatchThatDoesNotDivideSaysSo) {
  const cost::ScalingStudy study = studied(gpt2_job(3), {.sizes = {4, 6}, .strong = false, .weak = true});
  EXPECT_TRUE(study.series[0].points[0].best.has_value() || !study.series[0].points[0].reason.empty());
  EXPECT_THAT(study.series[0].points[1].reason, HasSubstr("no whole number at 6"));
}

TEST(ScalingStudy, HoldsOnePlanButForItsReplicas) {
  StudyJob job = gpt2_job();
  job.job.bounds.mesh.tensor = {2};
  const cost::ScalingStudy study = studied(job, {.sizes = {1, 2, 4, 8}, .hold_plan = true});
  const cost::ScalingSeries& series = study.series[0];
  EXPECT_THAT(series.held, HasSubstr("tensor 2"));
  EXPECT_FALSE(series.points[0].best);
  EXPECT_THAT(series.points[0].reason, HasSubstr("does not divide 1"));
  plan::PlanSpec of_largest = series.points[3].best->spec;
  for (std::size_t i = 1; i < 4; ++i) {
    ASSERT_TRUE(series.points[i].best) << series.points[i].reason;
    plan::PlanSpec spec = series.points[i].best->spec;
    EXPECT_EQ(spec.mesh.ranks(), series.points[i].devices);
    EXPECT_EQ(spec.mesh.data, series.points[i].devices / 2);
    if (spec.mesh.data == 1) spec.states.zero_stage = of_largest.states.zero_stage;  // nothing to partition
    spec.mesh.data = of_largest.mesh.data;
    EXPECT_EQ(spec, of_largest) << "all else is held";
  }
}

TEST(ScalingStudy, KeepsASizeThatNothingFitsWithItsReason) {
  StudyJob job = gpt2_job();
  job.model = testing::model("llama2-7b");
  job.job.sequence = 4096;
  const cost::ScalingStudy study = studied(job, {.sizes = {1, 3, 64, 12}});
  const auto& points = study.series[0].points;
  ASSERT_EQ(points.size(), 4U);
  EXPECT_FALSE(points[0].best);
  EXPECT_THAT(points[0].reason, HasSubstr("memory"));
  EXPECT_THAT(points[2].reason, HasSubstr("neither whole nodes")) << "12 devices in nodes of 8";
  ASSERT_TRUE(points[3].best) << points[3].reason;
  EXPECT_TRUE(any_plan(study));
  EXPECT_FALSE(scaling_study({job}, {.sizes = {12}})) << "no size at all";
}

TEST(ScalingStudy, StopsWhenItIsTold) {
  const std::atomic<bool> stop = true;
  StudyOptions options;
  options.sizes = {1, 2};
  options.stop = &stop;
  EXPECT_TRUE(studied(gpt2_job(), options).interrupted);
}

TEST(ScalingFigures, EfficiencyIsThroughputADeviceOverTheSmallestSizes) {
  const cost::ScalingSeries series = series_with({{8, 800}, {16, 1200}, {64, 2400}});
  EXPECT_DOUBLE_EQ(series.points[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(series.points[1].efficiency, 0.75);
  EXPECT_DOUBLE_EQ(series.points[2].efficiency, 0.375);
  EXPECT_DOUBLE_EQ(series.points[1].marginal, 0.5);
  EXPECT_NEAR(series.points[2].marginal, 1.0 / 3, 1e-12) << "twice the throughput of four times the devices";
  ASSERT_EQ(series.points[1].grown.size(), 1U);
  EXPECT_EQ(series.points[1].grown[0].dimension, "data");
}

TEST(ScalingFigures, GrowthPaysUpToTheFirstSizeToWhichItDoesNot) {
  const cost::ScalingSeries stops = series_with({{8, 800}, {16, 1500}, {32, 2000}, {64, 4000}});
  EXPECT_EQ(stops.pays_up_to, 16);
  EXPECT_EQ(stops.stops_paying_at, 32);
  const cost::ScalingSeries pays = series_with({{8, 800}, {16, 1500}});
  EXPECT_EQ(pays.pays_up_to, 16);
  EXPECT_EQ(pays.stops_paying_at, 0);
  EXPECT_EQ(series_with({{8, 800}, {16, 900}}).pays_up_to, 8);
}

TEST(ScalingFigures, ASizeWithoutAPlanIsLeftOutOfTheComparison) {
  cost::ScalingSeries series = series_with({{4, 100}, {8, 800}, {16, 1200}});
  series.points[0].best.reset();
  derive(series, 0.5);
  EXPECT_DOUBLE_EQ(series.points[1].efficiency, 1);
  EXPECT_EQ(series.points[1].before, std::nullopt);
  EXPECT_EQ(series.points[2].before, 1);
}

TEST(ScalingFigures, AnIntervalOfARatioCombinesBothErrors) {
  const cost::Interval both = ratio_interval(0.5, {0.9, 1 / 0.9}, {0.8, 1 / 0.8});
  const double half = std::hypot(std::log(1 / 0.9), std::log(1 / 0.8));
  EXPECT_NEAR(both.low, 0.5 * std::exp(-half), 1e-12);
  EXPECT_NEAR(both.high, 0.5 * std::exp(half), 1e-12);
  const cost::Interval shifted = ratio_interval(1, {1.1, 1.1}, {1, 1});
  EXPECT_NEAR(shifted.low, 1.1, 1e-12) << "what is measured slower than predicted makes the other one faster";
}

TEST(ScalingRuns, CostWhatTheirStepsDo) {
  cost::ScalingStudy study;
  study.series.push_back(series_with({{8, 1000}, {16, 1600}}));
  study.series[0].model = "m";
  for (cost::ScalingPoint& p : study.series[0].points) {
    p.best->cost_per_step_usd = p.best->step_time_s * p.devices * 2 / 3600;  // 2 $ a device and hour
    p.best->energy_per_step_j = p.best->step_time_s * p.devices * 500;
  }
  study.tokens = 3.6e9;
  study.co2_grams_per_kwh = 400;
  add_runs(study);
  const cost::RunCost& run = *study.series[0].points[0].run;
  EXPECT_DOUBLE_EQ(run.seconds, 3.6e6);
  EXPECT_NEAR(run.usd, 8 * 2 * 1000, 1e-6);
  EXPECT_NEAR(run.joules, 8 * 500 * 3.6e6, 1);
  EXPECT_NEAR(run.co2_grams, 8 * 500.0 * 400, 1e-3) << "4 kW for 1,000 hours";
  ASSERT_EQ(study.ways.size(), 1U);
  EXPECT_EQ(study.ways[0].cheapest->point, 0U);
  EXPECT_EQ(study.ways[0].fastest->point, 1U);
}

TEST(ScalingRuns, ADeadlineLeavesOutWhatMissesIt) {
  cost::ScalingStudy study;
  study.series.push_back(series_with({{8, 1000}, {16, 1900}, {32, 2500}}));
  study.series[0].model = "m";
  study.tokens = 1e6;
  study.deadline_s = 600;
  add_runs(study);
  EXPECT_EQ(study.ways[0].smallest->point, 1U);
  EXPECT_EQ(study.ways[0].cheapest->point, 1U) << "without a price device-seconds decide";
  EXPECT_EQ(study.ways[0].fastest->point, 2U);
  study.ways.clear();
  study.deadline_s = 1;
  add_runs(study);
  EXPECT_FALSE(study.ways[0].fastest);
  EXPECT_EQ(study.ways[0].nearest->point, 2U);
}

TEST(ScalingRuns, NoWayIsNamedBesideOneThatIsAsSmallAndCheaper) {
  cost::ScalingStudy study;
  for (const double usd : {5.0, 3.0, 3.0}) {
    study.series.push_back(series_with({{8, 1000}}));
    study.series.back().model = "m";
    study.series.back().points[0].best->cost_per_step_usd = usd;
  }
  study.tokens = 1e6;
  study.deadline_s = 1e6;
  add_runs(study);
  EXPECT_EQ(study.ways[0].smallest->series, 1U) << "of equal sizes the cheapest, of equals the first";
  EXPECT_EQ(study.ways[0].fastest->series, 1U);
  EXPECT_EQ(study.ways[0].cheapest->series, 1U);
}

TEST(ScalingMeasured, StandBesideThePointOfTheSameJobWhateverTheirPlan) {
  const StudyJob job = gpt2_job();
  cost::ScalingStudy study = studied(job, {.sizes = {4, 8}});
  const auto cluster = testing::cluster("hgx-h100", 8);
  plan::PlanSpec other = study.series[0].points[1].best->spec;
  other.mesh.data = 4, other.mesh.tensor = 2;
  const MeasuredJob measured{job.model.get(), cluster.get(), &other, "runs/a", 0.5, 0.4, false};
  add_measured(study, {job}, measured);
  add_measured(study, {job}, measured);
  ASSERT_EQ(study.series[0].measured.size(), 1U) << "once";
  EXPECT_EQ(study.series[0].measured[0].devices, 8);
  EXPECT_FALSE(study.series[0].measured[0].best_plan);
  plan::PlanSpec another = other;
  another.shape.batch = 128;
  EXPECT_TRUE(series_of(study, {job}, {job.model.get(), cluster.get(), &another, "", 1, 1, false}).empty());
  plan::PlanSpec narrower = other;
  narrower.numerics.precision = models::DType::fp8;
  EXPECT_TRUE(series_of(study, {job}, {job.model.get(), cluster.get(), &narrower, "", 1, 1, false}).empty());
  const auto medium = testing::model("gpt2-355m");
  EXPECT_TRUE(series_of(study, {job}, {medium.get(), cluster.get(), &other, "", 1, 1, false}).empty());
  const auto a100 = testing::cluster("dgx-a100", 8);
  EXPECT_TRUE(series_of(study, {job}, {job.model.get(), a100.get(), &other, "", 1, 1, false}).empty());
}

TEST(ScalingSizes, AreHalves) {
  EXPECT_EQ(halves_of(24), (std::vector<int>{3, 6, 12, 24}));
  EXPECT_EQ(halves_of(1), std::vector<int>{1});
}

}  // namespace scaling_test
}  // namespace orrery::sim
