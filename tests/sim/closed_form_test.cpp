/// The closed form against the replay over random plans of every technique (tests/sim/any_plan.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "cost/estimate/estimate.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/any_plan.h"

namespace orrery::sim {
namespace closed_form_test {

struct Deviation {
  double time = 0, memory = 0;  ///< closed form over replay, less 1
  std::vector<std::string> traits;
};

/// Quantiles of |deviations|.
struct Quantiles {
  double median = 0, p90 = 0, worst = 0;
};

Quantiles quantiles(std::vector<double> all) {
  if (all.empty()) return {};
  for (double& one : all) one = std::abs(one);
  std::sort(all.begin(), all.end());
  const auto at = [&](double share) {
    return all[std::min(all.size() - 1, static_cast<std::size_t>(share * static_cast<double>(all.size())))];
  };
  return {at(0.5), at(0.9), all.back()};
}

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void print(const std::vector<Deviation>& all) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_trait;
  for (const Deviation& d : all)
    for (const std::string& trait : d.traits) {
      by_trait[trait].first.push_back(d.time);
      by_trait[trait].second.push_back(d.memory);
    }
  fmt::print("{:36} {:>5}  {:>23}  {:>23}\n{:43} {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7}\n", "", "plans", "time, %",
             "memory, %", "", "median", "90th", "worst", "median", "90th", "worst");
  for (const auto& [trait, one] : by_trait) {
    const Quantiles t = quantiles(one.first), m = quantiles(one.second);
    fmt::print("{:36} {:5}  {:7.2f} {:7.2f} {:7.1f}  {:7.2f} {:7.2f} {:7.1f}\n", trait, one.first.size(),
               100 * t.median, 100 * t.p90, 100 * t.worst, 100 * m.median, 100 * m.p90, 100 * m.worst);
  }
}

/// Bounds on |closed form / replay - 1|. Few plans scatter more than the 2,000 of the long form.
struct Bounds {
  double median, p90, worst;
};
constexpr Bounds kTime = {1e-4, 0.006, 0.05}, kMemory = {1e-5, 1e-4, 0.012};
constexpr Bounds kTimeOfFew = {1e-4, 0.01, 0.3}, kMemoryOfFew = {1e-5, 5e-4, 0.02};

void expect_within(const Quantiles& q, const Bounds& bounds, const char* what) {
  EXPECT_LT(q.median, bounds.median) << what;
  EXPECT_LT(q.p90, bounds.p90) << what;
  EXPECT_LT(q.worst, bounds.worst) << what;
}

/// Plans drawn one after another, and their deviations. ORRERY_PLANS: how many; ORRERY_DEVIATIONS: a file for a line on
/// each.
std::vector<Deviation> deviations(testing::AnyPlans any, int plans) {
  const char* file = std::getenv("ORRERY_DEVIATIONS");
  std::ofstream lines(file ? file : "/dev/null");
  std::map<const clusters::Cluster*, std::shared_ptr<const Fabric>> fabrics;
  std::vector<Deviation> all;
  for (int i = 0; i < plans; ++i) {
    const testing::AnyPlan one = any.at(i);
    auto& fabric = fabrics[&one.plan->cluster()];
    if (!fabric) fabric = fabric_of(one.plan->cluster());
    cost::Estimator estimator(one.model, *one.pricing, shared_links(*one.pricing));
    const cost::Estimate estimate = estimator.estimate(*one.plan);
    for (const double least :
         {estimator.least_rate(*one.plan), estimator.least_work(*one.plan), estimator.least_time(*one.plan)})
      EXPECT_LE(least, (1 + 1e-9) * estimate.step_time) << one.where << ": " << plan::describe(one.plan->spec());
    for (const double least : {estimator.least_states(*one.plan), estimator.least_memory(*one.plan)})
      EXPECT_LE(least, (1 + 1e-9) * estimate.memory_peak) << one.where;
    EXPECT_GE((1 + 1e-9) * estimator.most_memory(*one.plan), estimate.memory_peak) << one.where;
    const cost::Prediction replayed = simulate(*one.plan, *one.pricing, {.spans = false, .fabric = fabric}).prediction;
    const Deviation d{estimate.step_time / replayed.step_time_s - 1,
                      estimate.memory_peak / replayed.memory_peak_bytes - 1, one.traits};
    lines << fmt::format("{}\t{:.3f}\t{:.3f}\t{}: {}\t{}\n", i, 100 * d.time, 100 * d.memory, one.where,
                         plan::describe(one.plan->spec()), fmt::join(d.traits, "|"));
    all.push_back(d);
  }
  print(all);
  return all;
}

void expect_within(const std::vector<Deviation>& all, const Bounds& time_bounds, const Bounds& memory_bounds) {
  std::vector<double> time, memory;
  for (const Deviation& d : all) time.push_back(d.time), memory.push_back(d.memory);
  expect_within(quantiles(time), time_bounds, "time");
  expect_within(quantiles(memory), memory_bounds, "memory");
}

TEST(ClosedFormOfAnyPlan, AgreesWithTheReplay) {
  constexpr int kMany = 2000;
  const int plans = number_of("ORRERY_PLANS", 100);
  expect_within(deviations(testing::AnyPlans(18), plans), plans < kMany ? kTimeOfFew : kTime,
                plans < kMany ? kMemoryOfFew : kMemory);
}

TEST(ClosedFormOfAnyPlan, AgreesWithTheReplayOnNewerFamilies) {
  testing::AnyPlans newer(30, testing::Families::newer);
  constexpr Bounds kTimeOfNewer = {1e-4, 0.01, 0.05}, kMemoryOfNewer = {1e-5, 5e-4, 0.012};
  expect_within(deviations(std::move(newer), number_of("ORRERY_PLANS", 60)), kTimeOfNewer, kMemoryOfNewer);
}

/// Whether every rank does one thing at a time: none of its spans begins before all earlier ones have ended.
bool one_at_a_time(const plan::Timeline& timeline) {
  constexpr double kTick = 1e-12;  // s, the replay's
  std::map<std::int32_t, std::vector<std::pair<double, double>>> by_rank;
  for (const plan::Span& span : timeline.spans) by_rank[span.rank].emplace_back(span.start, span.end);
  for (auto& [rank, spans] : by_rank) {
    std::sort(spans.begin(), spans.end());
    double end = 0;
    for (const auto& [from, to] : spans) {
      if (from < end - kTick / 2) return false;
      end = std::max(end, to);
    }
  }
  return true;
}

TEST(ClosedFormOfAnyPlan, EqualsTheReplayWhereNothingOverlapsAndNothingContends) {
  testing::AnyPlans some(20), more(21);
  constexpr int kPlans = 400;  // of each
  int compared = 0;
  for (int i = 0; i < 2 * kPlans; ++i) {
    const testing::AnyPlan one = (i < kPlans ? some : more).at(i % kPlans);
    // What a stage receives is priced as if it were encoded, too (docs/architecture.md).
    const plan::PlanSpec& spec = one.plan->spec();
    if (spec.compression.activations != plan::ActivationEncoding::none && spec.mesh.pipeline > 1) continue;
    const Simulation replayed = simulate(*one.plan, *one.pricing);
    if (replayed.prediction.breakdown.contention > 0 || replayed.spans_left_out > 0) continue;
    if (!one_at_a_time(replayed.timeline)) continue;
    const double closed =
        cost::Estimator(one.model, *one.pricing, shared_links(*one.pricing)).time(*one.plan).step_time;
    EXPECT_NEAR(closed / replayed.prediction.step_time_s, 1, 1e-9)
        << i << ", " << one.where << ": " << plan::describe(one.plan->spec());
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

TEST(ClosedFormOfAnyPlan, AsksForTheMemoryOfTheStageThatNeedsMost) {
  testing::AnyPlans any(22);
  int compared = 0;
  for (int i = 0; i < 200; ++i) {
    const testing::AnyPlan one = any.at(i);
    cost::Estimator estimator(one.model, *one.pricing, shared_links(*one.pricing));
    double most = 0;
    for (int stage = 0; stage < one.plan->spec().mesh.pipeline; ++stage)
      most = std::max(most, estimator.memory(*one.plan, plan::StageId(stage)).total());
    EXPECT_EQ(estimator.memory_peak(*one.plan), most) << one.where << ": " << plan::describe(one.plan->spec());
    compared += one.plan->spec().stages.splits_backward() ? 1 : 0;
  }
  EXPECT_GT(compared, 20) << "of split orders, where a later stage may need most";
}

// What frameworks keep makes bounds of layers of one sequence useful; without it they say no more than the states.
TEST(ClosedFormOfAnyPlan, BoundsMemoryAndTimeWithWhatFrameworksKeep) {
  testing::AnyPlans any(24);
  int bounded = 0;
  for (int i = 0; i < 150; ++i) {
    const testing::AnyPlan one = any.at(i);
    const auto cluster = std::make_shared<const clusters::Cluster>(one.plan->cluster());
    const cost::Pricing pricing(cluster, testing::stack(one.stack));
    cost::Estimator estimator(one.model, pricing, shared_links(pricing));
    for (const std::int64_t sequence : {one.plan->spec().shape.sequence, std::int64_t{1000}, std::int64_t{1536}}) {
      plan::PlanSpec spec = one.plan->spec();
      spec.shape.sequence = sequence;
      const auto plan = plan::make_plan(one.model, cluster, spec);
      if (!plan) continue;
      const double bytes = estimator.memory_peak(*plan), most = estimator.most_memory(*plan);
      const std::string what = fmt::format("{}: {} of {}", one.where, plan::describe(spec), sequence);
      EXPECT_LE(estimator.least_memory(*plan), (1 + 1e-9) * bytes) << what;
      EXPECT_GE((1 + 1e-9) * most, bytes) << what;
      EXPECT_LE(estimator.least_rate(*plan), (1 + 1e-9) * estimator.time(*plan).step_time) << what;
      bounded += std::isfinite(most) ? 1 : 0;
    }
  }
  EXPECT_GT(bounded, 20);
}

TEST(ClosedFormOfAnyPlan, IsTheSameFreshAndMemoised) {
  testing::AnyPlans any(19);
  int compared = 0;
  for (int i = 0; i < 12; ++i) {
    const std::vector<testing::AnyPlan> family = any.family(i, 60);
    if (family.empty()) continue;
    const cost::Pricing& pricing = *family.front().pricing;
    cost::Estimator memoised(family.front().model, pricing, shared_links(pricing));
    for (int round = 0; round < 2; ++round)
      for (const testing::AnyPlan& one : family) {
        const cost::Estimate fresh = cost::Estimator(one.model, pricing, shared_links(pricing)).estimate(*one.plan);
        const cost::Estimate again = memoised.estimate(*one.plan);
        EXPECT_EQ(fresh.step_time, again.step_time) << one.where << ": " << plan::describe(one.plan->spec());
        EXPECT_EQ(fresh.memory_peak, again.memory_peak) << one.where << ": " << plan::describe(one.plan->spec());
        ++compared;
      }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace closed_form_test
}  // namespace orrery::sim
