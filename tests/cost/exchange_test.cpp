/// How tokens travel to their experts: nodes a token goes to, two hops, own rows, overlap, and experts that are run
/// again.
#include "cost/prices/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/random.h"
#include "cost/estimate/layer_costs.h"
#include "cost/prices/pricing.h"
#include "models/read/read.h"
#include "plan/lower/repeated_modules.h"
#include "tests/clusters/support.h"

namespace orrery::cost::exchange_test {
namespace exchange_test {

std::vector<int> ranks_apart(int count, int stride = 1) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<std::size_t>(i)] = i * stride;
  return ranks;
}

/// The mean over drawn tokens: groups first, then experts of theirs, each as likely.
double drawn(const TokenChoice& c, int nodes) {
  constexpr std::uint64_t kTokens = 20'000;
  double sum = 0;
  std::uint64_t draws = 0;
  const auto take = [&](std::vector<std::int64_t>& from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      std::swap(
          from[static_cast<std::size_t>(i)],
          from[static_cast<std::size_t>(i) + base::below(from.size() - static_cast<std::size_t>(i), 7, 3, ++draws)]);
    from.resize(static_cast<std::size_t>(count));
  };
  for (std::uint64_t t = 0; t < kTokens; ++t) {
    std::vector<std::int64_t> groups(static_cast<std::size_t>(c.groups)), experts;
    std::iota(groups.begin(), groups.end(), 0);
    take(groups, c.groups_chosen);
    const std::int64_t each = c.experts / c.groups;
    for (const std::int64_t g : groups)
      for (std::int64_t e = 0; e < each; ++e) experts.push_back(g * each + e);
    take(experts, c.chosen);
    std::set<std::int64_t> met;
    for (const std::int64_t e : experts) met.insert(e / (c.experts / nodes));
    met.erase(0);  // the token's own
    sum += static_cast<double>(met.size());
  }
  return sum / static_cast<double>(kTokens);
}

TEST(TwoHops, ATokenGoesToAsManyNodesAsItsExpertsAreExpectedOn) {
  EXPECT_EQ(other_nodes({8, 128, 1, 1}, 1), 0);
  EXPECT_NEAR(other_nodes({1, 16, 1, 1}, 4), 0.75, 1e-12) << "one expert: three nodes of four are others";
  EXPECT_NEAR(other_nodes({2, 4, 1, 1}, 2), 1 - 2.0 / 4 * 1 / 3, 1e-12) << "both of a node's two: one pair of six";
  for (const TokenChoice c : {TokenChoice{8, 128, 1, 1}, {8, 256, 8, 4}, {6, 64, 4, 2}})
    for (const int nodes : {2, 4, 8, 16}) EXPECT_NEAR(other_nodes(c, nodes), drawn(c, nodes), 0.03) << nodes;
}

Pricing priced_with(const std::vector<Parameter>& numbers, const char* cluster = "hgx-h100-1024") {
  Stack stack;
  stack.name = "test";
  stack.parameters = numbers;
  return Pricing(std::make_shared<clusters::Cluster>(clusters::testing::catalog(cluster)), stack);
}
Parameter number(const char* name, double value) {
  return {name, value, Unit::number, "test"};
}

TEST(TwoHops, CarryATokenOnceToANodeWhereThePlainExchangeCarriesEachCopy) {
  const Pricing plain = priced_with({}), hops = priced_with({number("stack.exchange_two_hop", 1)});
  const TokenChoice v3{8, 256, 8, 4};
  const base::Bytes message{4096.0 * 8 * 7168 * 2};
  const double once = hops.exchange_time(message, ranks_apart(64), v3).value;
  const double each = plain.exchange_time(message, ranks_apart(64), v3).value;
  // 3.17 nodes of eight, where seven of eight copies leave.
  EXPECT_NEAR(once / each, other_nodes(v3, 8) / 7, 0.05);
  EXPECT_EQ(
      plain.exchange_time(message, ranks_apart(64), v3).value,
      plain.collective_time(plan::CollectiveKind::all_to_all, message, ranks_apart(64), plan::Stream::exchange).value);
  // Within a node nothing is saved, and nothing is lost but the pairs' slots.
  EXPECT_NEAR(hops.exchange_time(message, ranks_apart(8), v3).value,
              plain.exchange_time(message, ranks_apart(8), v3).value,
              0.15 * plain.exchange_time(message, ranks_apart(8), v3).value);
}

TEST(TwoHops, AreAsFastAsDeepEpsTableForSixtyFourRanks) {
  // deepseek-ai/DeepEP, README: 4,096 tokens of 7,168 on H800, 8 of 256 experts in 4 groups of 8, EP 64: dispatch in
  // fp8 at 51 GB/s of what reaches a node. Its 4 copies of a token are 4096 x 7168 x 4 bytes.
  const Pricing hops = priced_with({number("stack.exchange_two_hop", 1)});
  const double bytes = 4096.0 * 7168;
  const double published = 4 * bytes / 51e9;
  EXPECT_NEAR(hops.exchange_time(base::Bytes{8 * bytes}, ranks_apart(64), {8, 256, 8, 4}).value, published,
              0.15 * published);
}

TEST(HiddenExchanges, LeaveWhatTheyTakeFromComputeAndWhatNoComputeCovers) {
  EXPECT_EQ(exchange_left(priced_with({}), 2, 10, 1), 1);
  const Pricing hides = priced_with({number("stack.exchange_hidden", 1), number("stack.exchange_compute", 0.25)});
  EXPECT_DOUBLE_EQ(exchange_left(hides, 2, 10, 1), 0.25);
  EXPECT_DOUBLE_EQ(exchange_left(hides, 4, 1, 1), 1 - 0.75 / 4) << "compute for a quarter alone";
  EXPECT_DOUBLE_EQ(exchange_left(hides, 2, 10, 0.5), 0.625) << "half of the passes have a partner";
  EXPECT_EQ(exchange_left(hides, 2, 10, 0), 1) << "no pass has one";
}

models::LayerProgram layer(int tensor, int expert, bool whole) {
  auto model = models::parse_model(
      "family: llama\nname: m\nlayers: 2\nhidden: 1024\nheads: 16\nffn_hidden: 4096\nvocab: 1024\nmax_sequence: 2048\n"
      "experts: {count: 64, chosen: 4, hidden: 2048}\n",
      "m");
  if (!model) throw std::runtime_error(model.error().front().message);
  models::ExpandOptions o;
  o.sequence = 2048;
  o.tensor = tensor;
  o.sequence_parallel = tensor > 1;
  o.expert = expert;
  o.expert_bound = 1;
  o.expert_ways = whole ? 1 : tensor;
  o.dtype = models::DType::bf16;
  return models::expand(*model, models::LayerKind::block, 0, o);
}

LayerCosts costs(const models::LayerProgram& program, const Pricing& p, int tensor, int expert, bool whole,
                 const plan::Repeats& repeats = {}) {
  const LayerGroups groups{
      ranks_apart(tensor), {0}, ranks_apart(expert, whole ? 1 : tensor), ranks_apart(whole ? 1 : tensor)};
  return with_messages(layer_costs(program, {.repeats = repeats}, p, groups), p, groups);
}

TEST(ExpertLayers, DifferByPlaceInTheSecondsOfMessagesAlone) {
  const models::LayerProgram program = layer(1, 8, false);
  const Pricing p = priced_with({});
  const LayerGroups near{{0}, {0}, ranks_apart(8), {0}}, far{{0}, {0}, ranks_apart(8, 8), {0}};
  const LayerCosts alone = layer_costs(program, {}, p, near);
  EXPECT_EQ(alone.forward.messages, 0);
  const LayerCosts within = with_messages(alone, p, near), between = with_messages(alone, p, far);
  EXPECT_GT(within.forward.exchanges, 0);
  EXPECT_LT(within.forward.exchanges, between.forward.exchanges);
  EXPECT_EQ(within.forward.compute, between.forward.compute);
  const LayerCosts back = with_messages(between, p, near);
  EXPECT_EQ(back.forward.messages, within.forward.messages) << "priced anew, not on top";
  EXPECT_EQ(back.backward.messages, within.backward.messages);
}

TEST(ExpertLayers, RunAgainFromTheirRouterOnWhereExpertsAloneAreRecomputed) {
  const models::LayerProgram program = layer(1, 8, false);
  const plan::Repeats experts(plan::Modules().with(plan::Module::experts));
  const std::vector<models::Part> parts = plan::backward_parts(program, experts);
  const auto first = std::find_if(parts.begin(), parts.end(), [](const models::Part& p) { return p.recomputed; });
  ASSERT_NE(first, parts.end());
  EXPECT_EQ(first->ops.front().kind, models::OpKind::matmul) << "the router's product";
  EXPECT_EQ(first->ops.at(1).kind, models::OpKind::route);
  const LayerCosts kept = costs(program, priced_with({}), 1, 8, false);
  const LayerCosts again = costs(program, priced_with({}), 1, 8, false, experts);
  EXPECT_GT(again.backward.recomputed, 0.3 * kept.forward.compute);
  EXPECT_LT(again.backward.recomputed, kept.forward.compute) << "attention is not run again";
  EXPECT_DOUBLE_EQ(again.backward.exchanges, kept.backward.exchanges + kept.forward.exchanges);
  EXPECT_EQ(again.forward.compute, kept.forward.compute);
  const auto dropped = [](const LayerCosts& c) {
    return std::count_if(c.lives.begin(), c.lives.end(), [](const Life& life) { return life.dropped; });
  };
  EXPECT_EQ(dropped(kept), 0);
  EXPECT_GE(dropped(again), 3) << "rows that arrive, what experts make of them, and what comes back";
}

TEST(ExpertLayers, SendOwnRowsAndGatherThemWhereATensorGroupDividesExperts) {
  const models::LayerProgram program = layer(4, 32, false);
  const Pricing all = priced_with({}), own = priced_with({number("stack.exchange_own_rows", 1)});
  const double before = costs(program, all, 4, 32, false).forward.exchanges;
  const double after = costs(program, own, 4, 32, false).forward.exchanges;
  EXPECT_LT(after, 0.6 * before) << "a quarter over the NICs, and the rest over NVLink";
  EXPECT_GT(after, 0.2 * before);
  const models::LayerProgram whole = layer(4, 32, true);
  EXPECT_EQ(costs(whole, own, 4, 32, true).forward.exchanges, costs(whole, all, 4, 32, true).forward.exchanges);
}

TEST(ExpertLayers, InFewerBytesOnTheWayThereAsManyBack) {
  const models::LayerProgram program = layer(1, 64, false);
  const double wide = costs(program, priced_with({}), 1, 64, false).forward.exchanges;
  const double narrow =
      costs(program, priced_with({number("stack.exchange_bytes", 1)}), 1, 64, false).forward.exchanges;
  EXPECT_NEAR(narrow / wide, 0.75, 0.03);
}

TEST(ExpertLayers, CostTheHostTheCallsOfRoutersUnlessGraphsReplayThem) {
  const models::LayerProgram program = layer(1, 8, false);
  const Parameter call{"stack.host_op_time", 10e-6, Unit::seconds, "test"};
  const double bare = costs(program, priced_with({call}), 1, 8, false).forward.host;
  const double routed = costs(program, priced_with({call, number("stack.expert_calls", 70)}), 1, 8, false).forward.host;
  EXPECT_NEAR(routed - bare, 70 * 10e-6, 1e-12);
  const double graphed =
      costs(program, priced_with({call, number("stack.expert_calls", 70), number("stack.graphed", 1)}), 1, 8, false)
          .forward.host;
  EXPECT_NEAR(graphed, 6 * 10e-6, 1e-12) << "places, dispatch, two products, what is between them, combine";
}

TEST(ExpertLayers, MoveRowsAsOftenAsTheStackPermutesThem) {
  const models::LayerProgram program = layer(1, 8, false);
  const double once = costs(program, priced_with({}), 1, 8, false).forward.compute;
  const double twice = costs(program, priced_with({number("stack.permute_passes", 2)}), 1, 8, false).forward.compute;
  // Dispatch and combine: n rows read or written, and 4 n of them, in bf16.
  const double rows = 2 * 5 * 2048.0 * 1024 * 2;
  EXPECT_NEAR(twice - once, rows / (3350e9 * 0.9), 0.05 * rows / (3350e9 * 0.9));
}

}  // namespace exchange_test
}  // namespace orrery::cost::exchange_test
