/// What a stack does about all-to-alls of tokens and about experts shows in the replay, as in the closed form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cost/estimate/estimate.h"
#include "cost/parameters/habits.h"
#include "cost/prices/exchange.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace mixture_replay_test {

struct Told {
  cost::Breakdown closed, replayed;
  double closed_step = 0, replayed_step = 0;
};

/// A mixture on four nodes of H100, experts over several of them.
Told told(const std::vector<std::pair<const char*, double>>& numbers, int tensor = 1, int zero = 1,
          std::int64_t batch = 64, plan::Modules again = {}) {
  auto model = std::make_shared<models::Model>(*testing::model("qwen3-30b-a3b"));
  model->layers = 4;
  const auto cluster = testing::cluster("hgx-h100-1024", 32);
  cost::Stack stack = testing::stack("megatron-lm");
  stack.memory = {};
  for (const auto& [name, value] : numbers) stack.parameters.push_back({name, value, cost::Unit::number, "test"});
  const cost::Pricing pricing(cluster, stack);
  plan::PlanSpec spec;
  spec.mesh.data = 32 / tensor;
  spec.mesh.tensor = tensor;
  spec.mesh.sequence_parallel = tensor > 1;
  spec.mesh.expert = tensor > 1 ? 8 : 16;
  spec.shape.batch = batch;
  spec.shape.sequence = 4096;
  spec.states.zero_stage = zero;
  spec.numerics.flash = true;
  spec.numerics.precision = models::DType::bf16;
  spec.recomputation.modules = again;
  if (!again.empty()) spec.recomputation.what = plan::Recompute::selective;
  auto made = plan::make_plan(model, cluster, spec);
  if (!made) throw std::runtime_error(made.error().front().message);
  const cost::Estimate estimate = cost::Estimator(model, pricing).time(*made);
  const cost::Prediction replayed = simulate(*made, pricing, {.spans = false}).prediction;
  return {estimate.breakdown, replayed.breakdown, estimate.step_time, replayed.step_time_s};
}

void expect_near(double a, double b, double share, const char* what) {
  EXPECT_NEAR(a, b, share * b) << what;
}

TEST(MixtureReplay, WaitsForTwoHopsAsLongAsTheyArePriced) {
  const Told each = told({}), once = told({{"stack.exchange_two_hop", 1}});
  EXPECT_LT(once.replayed.exchange_communication, each.replayed.exchange_communication);
  expect_near(each.replayed.exchange_communication, each.closed.exchange_communication, 0.03, "each copy by itself");
  expect_near(once.replayed.exchange_communication, once.closed.exchange_communication, 0.03, "two hops");
}

TEST(MixtureReplay, WaitsForWhatComputeOfAnotherMicroBatchLeavesOfExchanges) {
  const Told open = told({});
  const Told hidden = told({{"stack.exchange_hidden", 1}, {"stack.exchange_compute", 0.25}});
  expect_near(hidden.replayed.exchange_communication, hidden.closed.exchange_communication, 0.03, "a quarter");
  EXPECT_LT(hidden.replayed.exchange_communication, 0.9 * open.replayed.exchange_communication);
}

TEST(MixtureReplay, HidesMoreTheMorePassesHaveAPartnerAndNothingOfOneMicroBatch) {
  const auto share_left = [](std::int64_t batch) {
    const Told open = told({}, 1, 1, batch);
    const Told hidden = told({{"stack.exchange_hidden", 1}, {"stack.exchange_compute", 0.25}}, 1, 1, batch);
    expect_near(hidden.replayed.exchange_communication, hidden.closed.exchange_communication, 0.03, "both forms");
    return hidden.replayed.exchange_communication / open.replayed.exchange_communication;
  };
  constexpr std::int64_t kOneEach = 32;
  EXPECT_DOUBLE_EQ(share_left(kOneEach), 1);
  EXPECT_LT(share_left(8 * kOneEach), share_left(2 * kOneEach));
}

// Where a pipeline fills and drains passes have no partner: on its first stage more of them than on its last.
TEST(MixtureReplay, HidesOnEachStageWhatItsOwnPassesCan) {
  const auto told_of = [](bool hides) {
    auto model = std::make_shared<models::Model>(*testing::model("qwen3-30b-a3b"));
    model->layers = 8;
    const auto cluster = testing::cluster("hgx-h100-1024", 64);
    cost::Stack stack = testing::stack("megatron-lm");
    stack.memory = {};
    if (hides) stack.parameters.push_back({"stack.exchange_hidden", 1, cost::Unit::number, "test"});
    const cost::Pricing pricing(cluster, stack);
    plan::PlanSpec spec;
    spec.mesh.pipeline = 8;
    spec.mesh.data = spec.mesh.expert = 8;
    spec.shape.batch = 80;
    spec.shape.sequence = 4096;
    spec.numerics.flash = true;
    spec.numerics.precision = models::DType::bf16;
    auto made = plan::make_plan(model, cluster, spec);
    if (!made) throw std::runtime_error(made.error().front().message);
    return Told{cost::Estimator(model, pricing).time(*made).breakdown,
                simulate(*made, pricing, {.spans = false}).prediction.breakdown};
  };
  const Told open = told_of(false), hidden = told_of(true);
  EXPECT_LT(hidden.replayed.exchange_communication, 0.9 * open.replayed.exchange_communication);
  expect_near(open.replayed.exchange_communication, open.closed.exchange_communication, 0.03, "open");
  expect_near(hidden.replayed.exchange_communication, hidden.closed.exchange_communication, 0.03, "hidden");
}

/// Four stages of two chunks of a mixture, experts over a node, in an order of DualPipe's.
struct InPairs {
  Told told;
  double closed_memory = 0, placed_memory = 0;
  double least = 0;  ///< the closed form's lower bound of the step
};
InPairs in_pairs(plan::Order order, bool overlaps, const std::vector<std::pair<const char*, double>>& numbers,
                 int tensor = 1, bool tensor_too = false) {
  auto model = std::make_shared<models::Model>(*testing::model("qwen3-30b-a3b"));
  model->layers = 16;
  const auto cluster = testing::cluster("hgx-h100-1024", 32);
  cost::Stack stack = testing::stack("megatron-lm");
  stack.memory = {};
  stack.overlap_exchange = overlaps;
  stack.overlap_tensor = tensor_too;
  for (const auto& [name, value] : numbers) stack.parameters.push_back({name, value, cost::Unit::number, "test"});
  const cost::Pricing pricing(cluster, stack);
  plan::PlanSpec spec;
  spec.stages.order = order, spec.stages.virtual_stages = 2;
  spec.mesh.pipeline = 4, spec.mesh.data = 8 / tensor, spec.mesh.tensor = tensor, spec.mesh.expert = 8 / tensor;
  spec.mesh.sequence_parallel = tensor > 1;
  spec.shape.batch = 32L * spec.mesh.data, spec.shape.sequence = 4096;
  spec.numerics.flash = true, spec.numerics.precision = models::DType::bf16;
  auto made = plan::make_plan(model, cluster, spec);
  if (!made) throw std::runtime_error(made.error().front().message);
  cost::Estimator estimator(model, pricing);
  const cost::Estimate estimate = estimator.estimate(*made);
  const cost::Prediction replayed = simulate(*made, pricing, {.spans = false}).prediction;
  return {{estimate.breakdown, replayed.breakdown, estimate.step_time, replayed.step_time_s},
          estimate.memory_peak,
          static_cast<double>(replayed.memory_peak_bytes),
          std::max(estimator.least_work(*made), estimator.least_time(*made))};
}

// The same program: only the stack says whether a message travels before something waits for it.
TEST(MixtureReplay, HidesAllToAllsOfAPairBehindTheOtherPass) {
  for (const plan::Order order : {plan::Order::dualpipe, plan::Order::dualpipe_v})
    for (const int tensor : {1, 2}) {
      const InPairs waits = in_pairs(order, false, {}, tensor), hides = in_pairs(order, true, {}, tensor);
      const double exchanged = waits.told.replayed.exchange_communication;
      const double hidden = exchanged - hides.told.replayed.exchange_communication;
      EXPECT_GT(hidden, 0.25 * exchanged) << name_of(order) << tensor;
      EXPECT_LT(hides.told.replayed_step, waits.told.replayed_step - hidden / 2) << name_of(order) << tensor;
      for (const InPairs& one : {waits, hides}) {
        expect_near(one.told.closed_step, one.told.replayed_step, 0.02, "step");
        EXPECT_LE(one.least, one.told.closed_step);
        expect_near(one.closed_memory, one.placed_memory, 1e-6, "memory: but for the tallies of experts");
      }
    }
}

TEST(MixtureReplay, NoBoundCountsMessagesThatAPairHides) {
  const InPairs alone = in_pairs(plan::Order::dualpipe_v, true, {}, 4);
  const InPairs hides = in_pairs(plan::Order::dualpipe_v, true, {}, 4, true);
  EXPECT_LT(hides.told.replayed_step, alone.told.replayed_step);
  EXPECT_LE(hides.least, hides.told.closed_step);
  expect_near(hides.told.closed_step, hides.told.replayed_step, 0.05, "step");
}

TEST(MixtureReplay, ComputeOfPairsLacksWhatAllToAllsTake) {
  const InPairs free = in_pairs(plan::Order::dualpipe, true, {}),
                taken = in_pairs(plan::Order::dualpipe, true, {{"stack.exchange_compute", 0.25}});
  EXPECT_GT(taken.told.replayed_step, 1.01 * free.told.replayed_step);
  expect_near(taken.told.closed_step, taken.told.replayed_step, 0.02, "step");
  const InPairs hidden = in_pairs(plan::Order::dualpipe, true, {{"stack.exchange_hidden", 1}});
  EXPECT_DOUBLE_EQ(hidden.told.replayed_step, free.told.replayed_step) << "the order hides them, once";
}

TEST(MixtureReplay, SendsEachTensorRanksOwnRowsAndFewerBytesOnTheWayThere) {
  const Told all = told({}, 4), own = told({{"stack.exchange_own_rows", 1}}, 4);
  EXPECT_LT(own.replayed.exchange_communication, 0.6 * all.replayed.exchange_communication);
  expect_near(own.replayed.exchange_communication, own.closed.exchange_communication, 0.05, "own rows");
  const Told wide = told({}), narrow = told({{"stack.exchange_bytes", 1}});
  expect_near(narrow.replayed.exchange_communication, 0.75 * wide.replayed.exchange_communication, 0.05,
              "one of two bytes there, two of two back");
}

TEST(MixtureReplay, RunsExpertsAgainFromTheirRouterOn) {
  const Told kept = told({}), again = told({}, 1, 1, 64, plan::Modules().with(plan::Module::experts));
  EXPECT_EQ(kept.replayed.recompute, 0);
  expect_near(again.replayed.recompute, again.closed.recompute, 0.03, "experts");
  EXPECT_LT(again.replayed.recompute, again.replayed.forward) << "attention is kept";
  expect_near(again.replayed.exchange_communication, 1.5 * kept.replayed.exchange_communication, 0.05,
              "six all-to-alls where four were");
}

TEST(MixtureReplay, ReducesGradientsBesideTheNextLayerWhereTheStackDoes) {
  const Told waits = told({}, 1, 3), beside = told({{"stack.reduce_beside", 1}}, 1, 3);
  EXPECT_LT(beside.replayed_step, 0.97 * waits.replayed_step);
  expect_near(beside.replayed_step, beside.closed_step, 0.08, "step");
}

}  // namespace mixture_replay_test
}  // namespace orrery::sim
