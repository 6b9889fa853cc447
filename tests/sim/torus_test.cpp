// Plans on a torus: where their ranks run, and what that is worth.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "clusters/routes.h"
#include "cost/estimate/estimate.h"
#include "cost/parameters/habits.h"
#include "plan/spec/placement.h"
#include "sim/links/equal_groups.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace torus_test {

std::shared_ptr<const clusters::Cluster> torus_of(int per_host, const std::string& block, const std::string& dims) {
  const std::string text = fmt::format(
      "name: small\ndevice: tpu-v4\nnode:\n  devices: {}\n"
      "  fabric: {{kind: torus, name: ici, block: {}, link_bandwidth: 50 GB/s, latency: 1 us}}\n"
      "  host: {{cpu: amd, sockets: 1, memory_bandwidth: 200 GB/s}}\n"
      "  pcie: {{switches: 0, bandwidth: 15.75 GB/s, latency: 0.4 us}}\n"
      "fabric: {{kind: torus, dims: {}}}\nstack: maxtext\nsources: [\"test\"]\n",
      per_host, block, dims);
  const auto read = clusters::parse_cluster(text, "small.yaml", clusters::testing::from_catalog);
  if (!read) throw std::runtime_error(base::render(read.error(), false));
  return std::make_shared<clusters::Cluster>(*read);
}

std::shared_ptr<const clusters::Cluster> torus_of_hosts() {
  return torus_of(4, "[2, 2, 1]", "[4, 4, 6]");
}

plan::Plan plan_on(std::shared_ptr<const clusters::Cluster> cluster, int data, int tensor) {
  models::Model model = samples::tiny_gpt(4, 3072);
  model.heads = model.kv_heads = 24;
  model.head_dim = model.hidden / 24;
  model.max_sequence = 2048;
  plan::PlanSpec spec;
  spec.mesh.data = data, spec.mesh.tensor = tensor, spec.states.zero_stage = 3;
  spec.shape.batch = data, spec.shape.sequence = 2048, spec.numerics.vocab_multiple = 1;
  auto made = plan::make_plan(std::make_shared<models::Model>(std::move(model)), std::move(cluster), spec);
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  return std::move(*made);
}

double replayed(const plan::Plan& plan, const cost::Pricing& pricing, std::vector<int> devices) {
  const plan::Schedule schedule = cost::lower_for(plan, pricing.stack());
  const JobInCompany job{&plan, &schedule, &pricing, std::move(devices)};
  return simulate(std::span(&job, 1)).front().prediction.step_time_s;
}

TEST(PlanOnATorus, RunsWhereACompilerPutsItsAxes) {
  const auto cluster = torus_of_hosts();
  const plan::Plan plan = plan_on(cluster, 8, 12);
  // No dimensions multiply to 12, so tensor has the longest whole one and half of another; replicas take what is left.
  EXPECT_EQ(plan::placement_text(*cluster, plan.spec()),
            "tensor 12 on 2 x 1 x 6, replicas 8 on 2 x 4 x 1, of a torus of 4 x 4 x 6");
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  std::vector<int> in_order(96);
  std::iota(in_order.begin(), in_order.end(), 0);
  const double placed = simulate(plan, pricing).prediction.step_time_s;
  EXPECT_DOUBLE_EQ(placed, replayed(plan, pricing, plan::devices_of(*cluster, plan::axes_of(*cluster, plan.spec()))));
  EXPECT_LT(placed, 0.9 * replayed(plan, pricing, in_order));
}

TEST(PlanOnATorus, IsEstimatedAsItIsReplayed) {
  const auto cluster = torus_of_hosts();
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  for (const auto& [data, tensor] : {std::pair{8, 12}, {24, 4}, {16, 6}, {4, 24}, {96, 1}}) {
    const plan::Plan plan = plan_on(cluster, data, tensor);
    cost::Estimator estimator(std::make_shared<models::Model>(plan.model()), pricing, shared_links(pricing));
    EXPECT_NEAR(estimator.time(plan).step_time / simulate(plan, pricing).prediction.step_time_s, 1, 0.02)
        << data << " x " << tensor;
  }
}

TEST(PlanOnATorus, SendsNothingOverTheHost) {
  const auto cluster = torus_of_hosts();
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  for (const auto& [data, tensor] : {std::pair{8, 12}, {24, 4}, {96, 1}}) {
    const cost::Prediction p = simulate(plan_on(cluster, data, tensor), pricing).prediction;
    ASSERT_EQ(p.links.size(), 1u) << data << " x " << tensor;
    EXPECT_NE(p.links.front().name, "pcie");
    EXPECT_GT(p.links.front().bytes, 0);
  }
}

TEST(PlanOnATorus, SaysWhereItRunsUnlessItIsToldWhere) {
  const auto cluster = torus_of_hosts();
  const plan::Plan plan = plan_on(cluster, 8, 12);
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  const plan::Schedule schedule = cost::lower_for(plan, pricing.stack());
  std::vector<int> in_order(96);
  std::iota(in_order.begin(), in_order.end(), 0);
  const JobInCompany own{&plan, &schedule, &pricing, {}}, told{&plan, &schedule, &pricing, in_order};
  EXPECT_NE(simulate(std::span(&own, 1)).front().prediction.on_torus, "");
  EXPECT_EQ(simulate(std::span(&told, 1)).front().prediction.on_torus, "");
}

// On a torus of six by four ranks 4 to 7 turn a corner and 8 to 11 are a line. Both have one link, but in an exchange
// half of all messages pass the middle of the line.
TEST(GroupsOnATorus, OfOneLinkAreNotAlikeIfTheyExchangeAtOtherRates) {
  const auto cluster = torus_of(1, "[1, 1]", "[6, 4]");
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  const std::vector<int> corner = {4, 5, 6, 7}, line = {8, 9, 10, 11};
  const clusters::GroupSpan of_corner = clusters::span_of(*cluster, corner);
  const clusters::GroupSpan of_line = clusters::span_of(*cluster, line);
  ASSERT_EQ(of_corner.bandwidth.value, of_line.bandwidth.value);
  ASSERT_NE(of_corner.exchange.value, of_line.exchange.value);
  const auto form = EqualGroups(pricing).form_alone(corner, 24, EqualGroups::Talk::all);
  ASSERT_TRUE(form);
  EXPECT_EQ(form->span.exchange.value, of_corner.exchange.value);
  ASSERT_EQ(form->others.size(), 1u);
  EXPECT_EQ(form->others.front().exchange.value, of_line.exchange.value);
}

TEST(GroupsOnATorus, OfTwoHalfwayRoundSendBothWays) {
  const auto cluster = torus_of(1, "[1, 1]", "[4, 4]");
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(false));
  EqualGroups groups(pricing);
  const auto form = groups.form_alone(std::vector<int>{0, 2}, 16, EqualGroups::Talk::all);
  ASSERT_TRUE(form);
  groups.each_group(*form, Wiring::rings, [&](const auto&, const Wired& wired, const auto&, std::span<const Use> uses) {
    EXPECT_EQ(wired.connections, 2);
    EXPECT_EQ(uses.size(), 8u);  // both directions of all four links
    for (const Use& use : uses) EXPECT_EQ(use.count, 1);
  });
}

TEST(PlanElsewhere, RunsInTheOrderOfDevices) {
  const auto cluster = testing::make({});
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.tensor = 2;
  EXPECT_FALSE(plan::axes_of(*cluster, spec).placed());
  EXPECT_TRUE(plan::devices_of(*cluster, plan::axes_of(*cluster, spec)).empty());
  EXPECT_EQ(plan::placement_text(*cluster, spec), "");
}

}  // namespace torus_test
}  // namespace orrery::sim
