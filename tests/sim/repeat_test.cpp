// A replay that counts micro-batches which do as others before them, against one that walks them all, to the tick.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "sim/links/fabric.h"
#include "sim/replay/replay.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace repeat_test {

using plan::Order;

// Like testing::random_plan, with many micro-batches and every order.
std::optional<plan::Plan> long_plan(testing::Dice& dice, std::shared_ptr<const clusters::Cluster> cluster) {
  models::Model model = samples::tiny_gpt(8, 64 << dice.below(4));
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / 8;
  plan::PlanSpec spec;
  spec.mesh.tensor = dice.of({1, 1, 2, 4});
  spec.mesh.pipeline = dice.of({1, 2, 2, 4});
  if (cluster->size() % (spec.mesh.tensor * spec.mesh.pipeline) != 0) return std::nullopt;
  spec.mesh.data = cluster->size() / (spec.mesh.tensor * spec.mesh.pipeline);
  spec.shape.batch = static_cast<std::int64_t>(spec.mesh.data) * dice.of({60, 64, 96, 128, 132});
  spec.shape.sequence = 16;
  spec.numerics.vocab_multiple = 1;
  spec.states.zero_stage = dice.below(4);
  spec.stages.order = dice.of({Order::gpipe, Order::one_f_one_b, Order::one_f_one_b, Order::zb_h1, Order::zb_h2,
                               Order::zb_v, Order::dualpipe_v, Order::dualpipe});
  if (spec.stages.order == Order::one_f_one_b && spec.mesh.pipeline > 1)
    spec.stages.virtual_stages = dice.of({1, 1, 2});
  if (spec.stages.order == Order::zb_v || spec.stages.order == Order::dualpipe_v ||
      spec.stages.order == Order::dualpipe)
    spec.stages.virtual_stages = 2;
  spec.recomputation.what = dice.of({plan::Recompute::none, plan::Recompute::full});
  spec.states.overlap_gradients = dice.below(2) == 1;
  if (spec.mesh.pipeline == 1 && dice.below(3) == 0) spec.offload.activations = plan::Space::host;
  spec.numerics.precision = dice.of({models::DType::fp32, models::DType::bf16});
  const auto made = plan::make_plan(std::make_shared<models::Model>(std::move(model)), std::move(cluster), spec);
  if (!made) return std::nullopt;
  return *made;
}

void expect_equal(const Replay& counted, const Replay& walked, const std::string& what) {
  EXPECT_EQ(counted.makespan, walked.makespan) << what;
  ASSERT_EQ(counted.classes.size(), walked.classes.size()) << what;
  for (std::size_t c = 0; c < walked.classes.size(); ++c)
    EXPECT_TRUE(counted.classes[c].totals == walked.classes[c].totals) << what << ", class " << c;
  EXPECT_EQ(counted.carried, walked.carried) << what;
}

TEST(Repeat, EqualsTheWalkOfEveryMicroBatchToTheTickOnRandomClusters) {
  int compared = 0, shorter = 0;
  std::map<Order, int> by_order;
  for (std::uint64_t seed = 0; compared < 60; ++seed) {
    testing::Dice dice(seed);
    const auto cluster = testing::make(testing::random_cluster(dice));
    const auto plan = long_plan(dice, cluster);
    if (!plan) continue;
    const cost::Pricing pricing(cluster, testing::stack_that_overlaps(dice.below(3) > 0));
    const plan::Schedule schedule = plan::lower(*plan);
    const std::string what = fmt::format("seed {}: {}", seed, plan::describe(plan->spec()));
    ASSERT_EQ(base::render(plan::check(schedule), false), "") << what;
    const JobOnCluster job{&schedule, &pricing, {}};
    const auto fabric = fabric_of(*cluster);
    const Replay counted = replay(std::span(&job, 1), *cluster, fabric.get(), {.spans = false});
    const Replay walked =
        replay(std::span(&job, 1), *cluster, fabric.get(), {.spans = false, .every_micro_batch = true});
    expect_equal(counted, walked, what);
    if (2 * counted.steps_walked < walked.steps_walked) ++shorter, ++by_order[plan->spec().stages.order];
    ++compared;
    if (HasFailure()) return;
  }
  EXPECT_GT(3 * shorter, compared) << "hardly anything was left out";
  fmt::print("{} plans, {} of them walked by less than half\n", compared, shorter);
  for (const auto& [order, count] : by_order) fmt::print("  {} {}\n", plan::name_of(order), count);
}

// A pipeline of 16 stages whose micro-batches are `micro_batches`.
plan::Plan pipeline(std::int64_t micro_batches) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = 16;
  spec.shape.batch = micro_batches;
  spec.shape.sequence = 16;
  spec.numerics.vocab_multiple = 1;
  const auto made = plan::make_plan(std::make_shared<models::Model>(samples::tiny_gpt(16, 64)),
                                    testing::make({.nodes = 2, .devices = 8}), spec);
  EXPECT_TRUE(made) << base::render(made.error(), false);
  return *made;
}

TEST(Repeat, SixtyFiveThousandMicroBatchesCostWhatAThousandDo) {
  std::size_t entries[2];
  std::int64_t steps[2];
  int i = 0;
  for (const std::int64_t micro_batches : {1 << 10, 1 << 16}) {
    const plan::Plan plan = pipeline(micro_batches);
    const plan::Schedule schedule = plan::lower(plan);
    EXPECT_TRUE(plan::check(schedule).empty());
    const auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
    const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
    const JobOnCluster job{&schedule, &pricing, {}};
    const auto fabric = fabric_of(*cluster);
    entries[i] = 0;
    for (const plan::RankClass& c : schedule.classes) {
      EXPECT_EQ(static_cast<std::int64_t>(c.program.size()), 2 * micro_batches + 2);
      entries[i] += c.program.kept();
    }
    steps[i++] = replay(std::span(&job, 1), *cluster, fabric.get(), {.spans = false}).steps_walked;
  }
  // Sixty-four times as many; when the same state is come upon again is chance.
  EXPECT_LT(entries[1], 2 * entries[0]);
  EXPECT_LT(steps[1], 2 * steps[0]);
}

// What is noted is the beginning, some micro-batches of the middle, and the end, each at its own time.
TEST(Repeat, SpansOfALongStepAreThoseOfItsBeginningAndEnd) {
  const plan::Plan plan = pipeline(512);
  const auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
  const Simulation whole = simulate(plan, pricing, {});
  const auto all = static_cast<std::int64_t>(whole.timeline.spans.size());
  EXPECT_EQ(whole.spans_left_out, 0);
  const Simulation cut = simulate(plan, pricing, {.most_spans = all - 1});
  const auto kept = static_cast<std::int64_t>(cut.timeline.spans.size());
  EXPECT_LT(2 * kept, all);
  EXPECT_EQ(kept + cut.spans_left_out, all);
  EXPECT_EQ(cut.prediction.step_time_s, whole.prediction.step_time_s);
  std::map<std::pair<int, plan::StepRef>, const plan::Span*> by_place;
  for (const plan::Span& span : whole.timeline.spans) by_place[{span.rank, span.at}] = &span;
  for (const plan::Span& span : cut.timeline.spans) {
    const plan::Span& same = *by_place.at({span.rank, span.at});
    ASSERT_EQ(span.start, same.start);
    ASSERT_EQ(span.end, same.end);
    ASSERT_EQ(span.micro_batch, same.micro_batch);
  }
  EXPECT_EQ(static_cast<std::int64_t>(simulate(plan, pricing, {.most_spans = 100}).timeline.spans.size()), 100);
}

}  // namespace repeat_test
}  // namespace orrery::sim
