/// The fit against timelines made from known coefficients, with noise and outliers: what it recovers, what it leaves
/// alone, what it refuses, and what its result predicts for plans it has not seen.
#include "cost/fit/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "plan/lower/lower.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace fit_test {

constexpr std::uint64_t kSeed = 7;

/// The machine as it "really" is: every coefficient off its default by up to a factor of three and a half.
cost::Calibration truth(const cost::Calibration& believed) {
  cost::Calibration c = believed;
  c.name = "truth";
  std::uint64_t i = 0;
  for (auto& [name, parameter] : c.parameters) {
    const auto kind = cost::known_parameter(name);
    if (kind->prior > 0) parameter.value *= std::exp(1.3 * (2 * base::uniform(kSeed, 1, i++) - 1));
  }
  return c;
}

plan::PlanSpec spec_of(int data, int tensor, int pipeline, std::int64_t micro_batch, int zero = 0) {
  plan::PlanSpec spec;
  spec.mesh.data = data;
  spec.mesh.tensor = tensor;
  spec.mesh.pipeline = pipeline;
  spec.shape.micro_batch = micro_batch;
  spec.states.zero_stage = zero;
  spec.shape.batch = 16;
  spec.shape.sequence = 64;
  return spec;
}

struct World {
  std::shared_ptr<const models::Model> model = testing::model("tiny-gpt");
  std::shared_ptr<const clusters::Cluster> cluster = testing::cluster("localhost-2");
  cost::Stack stack = testing::stack("orrery-cpu");
  cost::Pricing believed{cluster, stack};
  cost::Pricing real{cluster, stack, {truth(believed.calibration())}};

  [[nodiscard]] plan::Plan plan(const plan::PlanSpec& spec) const {
    auto made = plan::make_plan(model, cluster, spec);
    if (!made) throw std::runtime_error(base::render(made.error(), false));
    return *made;
  }

  /// A run as the executor would note it: the replay with real prices; overheads lie between spans; every span is off
  /// by 5 % (one sigma), one in twenty takes three times as long.
  [[nodiscard]] cost::FitRun measure(const plan::PlanSpec& spec, std::uint64_t stream) const {
    const plan::Plan made = plan(spec);
    cost::FitRun run;
    run.name = plan::describe(spec);
    run.schedule = plan::lower(made);
    const plan::Timeline once = simulate(made, run.schedule, real).timeline;
    run.timeline.spec = spec;
    run.timeline.origin = plan::Origin::measured;
    const double dispatch = real.calibration().at("stack.dispatch_overhead");
    std::uint64_t i = 0;
    std::vector<double> lengths;
    for (int iteration = 0; iteration < 12; ++iteration) {
      std::map<int, double> late;  // by rank: what noise has added so far
      for (plan::Span span : once.spans) {
        const plan::RankClass& c = run.schedule.class_of(span.rank);
        const plan::Entry& entry = c.program[static_cast<std::size_t>(span.at.entry)];
        const bool compute =
            c.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(span.at.step)].kind ==
            plan::StepKind::compute;
        span.iteration = iteration;
        if (compute) span.start += dispatch;
        const double length = span.end - span.start - (compute ? 0 : dispatch);
        double noisy = length * (1 + 0.05 * base::normal(kSeed, stream, i));
        if (base::uniform(kSeed, stream + 1000, i) < 0.05) noisy *= 3;
        ++i;
        double& shift = late[span.rank];
        span.ready += shift;
        span.start += shift;
        span.end = span.start + noisy;
        shift += noisy - length;
        run.timeline.spans.push_back(span);
      }
      double mean = 0;
      for (const auto& [rank, shift] : late) mean += shift / static_cast<double>(late.size());
      lengths.push_back(once.step_time + mean);
    }
    for (std::size_t c = 0; c < run.schedule.classes.size(); ++c)
      for (std::size_t b = 0; b < run.schedule.classes[c].blocks.size(); ++b)
        for (std::size_t s = 0; s < run.schedule.classes[c].blocks[b].steps.size(); ++s) {
          const plan::Step& step = run.schedule.classes[c].blocks[b].steps[s];
          for (std::size_t o = 0; o < step.ops.size(); ++o)
            run.timeline.operators.push_back(
                {static_cast<int>(c), static_cast<int>(b), static_cast<int>(s), static_cast<int>(o), 1,
                 real.op_time(step.ops[o]).value * (1 + 0.05 * base::normal(kSeed, stream + 2000, i++))});
        }
    std::sort(lengths.begin(), lengths.end());
    run.timeline.step_time = lengths[lengths.size() / 2];
    return run;
  }

  [[nodiscard]] std::vector<cost::FitRun> measured() const {
    return {measure(spec_of(1, 1, 2, 2), 10), measure(spec_of(2, 1, 1, 8), 11), measure(spec_of(1, 2, 1, 4), 12),
            measure(spec_of(2, 1, 1, 2, 1), 13), measure(spec_of(2, 1, 1, 4, 3), 14)};
  }
};

/// One fit to all runs, shared by the tests that look at it.
const cost::Fitted& fit_to_all() {
  static const cost::Fitted fitted = [] {
    const World world;
    auto result = cost::fit(world.measured(), world.believed, {.date = "2026-01-02", .name = "fitted"});
    if (!result) throw std::runtime_error(base::render(result.error(), false));
    return *result;
  }();
  return fitted;
}

TEST(Fit, PredictsPlansItHasNotSeen) {
  const World world;
  const cost::Fitted& fitted = fit_to_all();
  const cost::Pricing after(world.cluster, world.stack, {fitted.calibration});
  constexpr double kBound = 0.10;
  double before_worst = 0;
  for (const plan::PlanSpec& spec :
       {spec_of(2, 1, 1, 1), spec_of(1, 2, 1, 16), spec_of(1, 1, 2, 8), spec_of(2, 1, 1, 8, 2)}) {
    const plan::Plan plan = world.plan(spec);
    const double real = simulate(plan, world.real).prediction.step_time_s;
    const double predicted = simulate(plan, after).prediction.step_time_s;
    before_worst = std::max(before_worst, std::abs(simulate(plan, world.believed).prediction.step_time_s / real - 1));
    EXPECT_NEAR(predicted / real, 1, kBound) << plan::describe(spec);
  }
  EXPECT_GT(before_worst, kBound) << "a test that the defaults would pass tests nothing";
  EXPECT_LT(fitted.result.error_after, fitted.result.error_before / 2);
  EXPECT_LT(fitted.result.held_out_error_after, fitted.result.error_before);
}

TEST(Fit, RecoversWhatTheSpansReveal) {
  const World world;
  const cost::Calibration& fitted = fit_to_all().calibration;
  for (const char* name :
       {"device.matmul.fp32.efficiency", "device.attention.grad_efficiency", "device.vector.activation.rate",
        "device.vector.activation_grad.rate", "device.vector.normalisation_grad.rate", "network.all_reduce.bandwidth",
        "network.reduce_scatter.bandwidth", "stack.op_overhead", "stack.dispatch_overhead"}) {
    EXPECT_NEAR(std::log(fitted.at(name) / world.real.calibration().at(name)), 0, 0.2)
        << name << ": " << fitted.at(name) << " for " << world.real.calibration().at(name);
  }
}

TEST(Fit, LeavesAloneWhatNoSpanReveals) {
  const World world;
  const auto fitted =
      cost::fit({world.measure(spec_of(2, 1, 1, 8), 11)}, world.believed, {.date = "2026-01-02", .name = "one"});
  ASSERT_TRUE(fitted);
  EXPECT_FALSE(fitted->calibration.has("network.send.latency")) << "nothing was sent";
  EXPECT_FALSE(fitted->calibration.has("network.all_gather.bandwidth")) << "nothing was gathered";
  EXPECT_FALSE(fitted->calibration.has("device.matmul.bf16.efficiency")) << "nothing ran in bf16";
  EXPECT_TRUE(fitted->calibration.has("network.all_reduce.bandwidth"));
  EXPECT_EQ(fitted->calibration.device, world.cluster->device().name);
  EXPECT_EQ(fitted->calibration.stack, "orrery-cpu");
  for (const auto& [name, parameter] : fitted->calibration.parameters)
    EXPECT_NE(parameter.source.find("fit 2026-01-02 to 1 run: data 2"), std::string::npos)
        << name << ": " << parameter.source;
}

TEST(Fit, IsDeterministic) {
  const World world;
  const std::vector<cost::FitRun> runs = {world.measure(spec_of(2, 1, 1, 8), 11)};
  const auto once = cost::fit(runs, world.believed, {.date = "d", .name = "n"});
  const auto again = cost::fit(runs, world.believed, {.date = "d", .name = "n"});
  EXPECT_EQ(cost::write_calibration(once->calibration), cost::write_calibration(again->calibration));
}

TEST(Fit, LeavesOutRunsThatSomethingElseSlowed) {
  const World world;
  std::vector<cost::FitRun> runs;
  for (std::uint64_t stream : {21U, 22U, 23U}) runs.push_back(world.measure(spec_of(2, 1, 1, 8), stream));
  cost::FitRun& slow = runs.back();
  slow.name = "beside a compilation";
  slow.timeline.step_time *= 2;
  for (plan::Span& span : slow.timeline.spans) span.ready *= 2, span.start *= 2, span.end *= 2;
  const auto three = cost::fit(runs, world.believed, {.date = "2026-01-02", .name = "three"});
  ASSERT_TRUE(three.has_value());
  EXPECT_TRUE(std::any_of(three->result.notes.begin(), three->result.notes.end(), [](const std::string& note) {
    return note.find("beside a compilation: left out") != std::string::npos;
  }));
  runs.pop_back();
  const auto two = cost::fit(runs, world.believed, {.date = "2026-01-02", .name = "two"});
  ASSERT_TRUE(two.has_value());
  for (const cost::FittedParameter& p : two->result.parameters)
    EXPECT_DOUBLE_EQ(three->calibration.at(p.name), p.after) << p.name;
}

TEST(Fit, RefusesRunsWhoseRanksOutnumberTheCores) {
  const World world;
  std::vector<cost::FitRun> runs = {world.measure(spec_of(2, 1, 1, 8), 11), world.measure(spec_of(1, 2, 1, 8), 12)};
  runs[1].timeline.oversubscribed = true;
  const auto fitted = cost::fit(runs, world.believed, {.date = "d", .name = "n"});
  ASSERT_TRUE(fitted);
  ASSERT_EQ(fitted->result.notes.size(), 1u);
  EXPECT_NE(fitted->result.notes[0].find("tensor 2"), std::string::npos);
  runs[0].timeline.oversubscribed = true;
  const auto none = cost::fit(runs, world.believed, {.date = "d", .name = "n"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().front().code, "F01");
}

}  // namespace fit_test
}  // namespace orrery::sim
