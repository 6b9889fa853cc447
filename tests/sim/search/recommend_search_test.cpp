/// Plans of recommendation models: searched, simulated, refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/read/read.h"
#include "sim/search/search.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace recommend_search_test {

plan::Job clicks_job(std::int64_t batch) {
  plan::Job job;
  job.batch = batch;
  job.sequence = 1;
  job.training.optimizer.kind = plan::OptimizerKind::rowwise_adagrad;
  return job;
}

cost::SearchResult search_clicks(const char* model, const char* cluster, const char* stack, const plan::Job& job) {
  const auto on = testing::cluster(cluster);
  return search(testing::model(model), on, job, cost::Pricing(on, testing::stack(stack)), {});
}

cost::Prediction simulated(const char* model, const char* cluster, int devices, const plan::Job& job,
                           const plan::Embedding& embedding, std::optional<int> staleness = {}) {
  const auto on = testing::cluster(cluster, devices);
  plan::PlanSpec spec;
  spec.mesh.data = on->size();
  spec.shape.batch = job.batch;
  spec.shape.micro_batch = job.batch / spec.mesh.data;
  spec.embedding = embedding;
  spec.states.staleness = staleness;
  plan::take_optimizer(spec, job.training);
  const auto plan = plan::make_plan(testing::model(model), on, spec);
  EXPECT_TRUE(plan) << base::render(plan.error(), false);
  return simulate(*plan, cost::Pricing(on, testing::stack("megatron-lm")), {.spans = false}).prediction;
}

double exchanged(const cost::Prediction& p) {
  double bytes = 0;
  for (const cost::CommunicationRow& row : p.communication)
    if (row.operation == "all_to_all") bytes += row.bytes;
  return bytes;
}

TEST(RecommendSearch, RanksEveryWayToPlaceTables) {
  const cost::SearchResult found = search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", clicks_job(64));
  EXPECT_EQ(found.candidates, 5);  // auto, whole, row, column, replicated
  EXPECT_EQ(found.feasible, 5);
  ASSERT_EQ(found.plans.size(), 5U);
  EXPECT_FALSE(found.optimality_gap);
  for (std::size_t i = 1; i < found.plans.size(); ++i)
    EXPECT_LE(found.plans[i - 1].step_time_s, found.plans[i].step_time_s);
  for (const cost::Prediction& plan : found.plans) {
    ASSERT_EQ(plan.tables.size(), 8U);
    EXPECT_GT(plan.tables[0].compute_s, 0);
    EXPECT_GT(plan.tables[0].bytes, 0);
    EXPECT_GE(plan.placement_gap.value_or(-1), -1e-9) << plan::describe(plan.spec);
    EXPECT_GT(plan.tokens_per_s, 0);
  }
}

TEST(RecommendSearch, TakesWhatTheJobBounds) {
  plan::Job job = clicks_job(64);
  job.bounds.embedding.sharding = {plan::TableSharding::row};
  job.bounds.embedding.forward = {plan::PooledType::fp32, plan::PooledType::fp16};
  const cost::SearchResult found = search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job);
  ASSERT_EQ(found.plans.size(), 2U);
  for (const cost::Prediction& plan : found.plans) EXPECT_EQ(plan.spec.embedding.sharding, plan::TableSharding::row);
}

TEST(RecommendSearch, SaysWhatARecommendationModelHasNot) {
  plan::Job job = clicks_job(64);
  job.bounds.mesh.tensor = {2};
  job.bounds.mesh.data = {2};
  const cost::SearchResult found = search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job);
  EXPECT_TRUE(found.plans.empty());
  EXPECT_EQ(found.rejected.at("P130 a recommendation model split other than by data"), 5);
  job = clicks_job(64);
  job.training.optimizer.kind = plan::OptimizerKind::adamw;
  EXPECT_TRUE(search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job).plans.empty());
  job = clicks_job(64);
  job.precision = models::DType::fp8;
  EXPECT_TRUE(search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job).plans.empty());
  job = clicks_job(63);
  EXPECT_EQ(search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job)
                .rejected.count("P09 data x micro-batch does not divide the batch"),
            1U);
}

TEST(RecommendSearch, HasAParameterServerWhereTheJobNamesIt) {
  plan::Job job = clicks_job(64);
  job.bounds.states.staleness = 2;
  const cost::SearchResult found = search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job);
  ASSERT_EQ(found.feasible, 5);
  for (const cost::Prediction& plan : found.plans) {
    EXPECT_EQ(plan.spec.states.staleness, 2);
    EXPECT_GT(plan.step_time_s, 0);
  }
  job.bounds.embedding.tiers = plan::TableTiers({plan::TableTier{plan::Space::host, 0}});
  const cost::SearchResult far = search_clicks("tiny-dlrm", "localhost-4", "orrery-cpu", job);
  EXPECT_TRUE(far.plans.empty());
  EXPECT_EQ(far.rejected.at("P83 a parameter server with offload"), 5);
}

// Tables that the devices hold alone, but not beside all else, leave them; what fits stays, and needs no cache.
TEST(RecommendSearch, TablesLeaveDevicesWhereNoPlanHasRoomForThem) {
  const auto found = [](int devices) {
    const auto on = testing::cluster("zionex-128", devices);
    plan::Job job = clicks_job(std::int64_t{512} * devices);
    job.bounds.embedding.sharding = {plan::TableSharding::automatic};
    job.bounds.embedding.skew = 1;
    return search(testing::model("zionex-845b"), on, job, cost::Pricing(on, testing::stack("generic-recommender")), {});
  };
  const cost::SearchResult many = found(128);
  ASSERT_FALSE(many.plans.empty());
  EXPECT_TRUE(many.plans.front().spec.embedding.tiers.empty());
  EXPECT_EQ(many.plans.front().memory.front().host, 0);
  const cost::SearchResult few = found(88);  // 11 nodes: tables and states alone fill 91 % of their HBM
  ASSERT_FALSE(few.plans.empty());
  const cost::Prediction& best = few.plans.front();
  EXPECT_EQ(few.rejected.count("memory: does not fit the device"), 1U);
  EXPECT_FALSE(best.spec.embedding.tiers.empty());
  EXPECT_GT(best.memory.front().host, 0);
  EXPECT_LE(best.memory_peak_bytes, best.memory_capacity_bytes);
  const auto far = std::find_if(best.tables.begin(), best.tables.end(), [](const auto& t) { return t.tier == "host"; });
  ASSERT_NE(far, best.tables.end());
  EXPECT_GT(far->hit_rate, 0.1);
  EXPECT_LT(far->hit_rate, 1);
  const auto copies = std::find_if(best.communication.begin(), best.communication.end(),
                                   [](const auto& row) { return row.operation == "from_host"; });
  ASSERT_NE(copies, best.communication.end()) << "rows come as copies of the schedule";
  EXPECT_GT(copies->bytes, 0);
}

// What is beside tables on a device, such as the rows that its samples look up, may be much: where there is little
// room, tables are placed by memory rather than by load.
TEST(RecommendSearch, TheChoiceOfShardingsFitsWhereOneOfThemDoes) {
  std::string text = "family: dlrm\nname: uneven\ndense_features: 13\nembedding_dim: 64\ntables:\n";
  for (int t = 0; t < 64; ++t)
    text += fmt::format("  - {{rows: {}, multi_hot: {}}}\n", 1000 + 4'000'000 * (t % 7) * (t % 3), 1 + t * t % 23);
  const auto read = models::parse_model(text + "bottom_mlp: [512, 64]\ntop_mlp: [512, 1]\n", "uneven.yaml");
  ASSERT_TRUE(read) << base::render(read.error(), false);
  const auto model = std::make_shared<const models::Model>(*read);
  const auto found = [&](plan::TableSharding sharding, double memory) {
    clusters::Cluster cluster = *testing::cluster("zionex-128", 16);
    cluster.devices.front().memory = base::Bytes{memory};
    const auto on = std::make_shared<const clusters::Cluster>(cluster);
    plan::Job job = clicks_job(65536);
    job.bounds.embedding.sharding = {sharding};
    job.bounds.embedding.tiers = *plan::TableTiers::parse_rows({{"device", {}}});
    return search(model, on, job, cost::Pricing(on, testing::stack("generic-recommender")), {});
  };
  const double wide = found(plan::TableSharding::automatic, 80e9).plans.at(0).memory_peak_bytes;
  int fits = 0, none = 0;
  for (const double share : {0.99, 0.95, 0.9, 0.8, 0.5}) {
    bool narrow = false;
    for (const plan::TableSharding sharding : {plan::TableSharding::whole, plan::TableSharding::column,
                                               plan::TableSharding::node_row, plan::TableSharding::row})
      narrow |= !found(sharding, share * wide).plans.empty();
    const cost::SearchResult free = found(plan::TableSharding::automatic, share * wide);
    EXPECT_TRUE(!narrow || !free.plans.empty()) << share;
    if (!free.plans.empty()) {
      EXPECT_LE(free.plans.front().memory_peak_bytes, share * wide);
      EXPECT_TRUE(free.plans.front().spec.embedding.tiers.empty());
    }
    ++(narrow ? fits : none);
  }
  EXPECT_GT(fits, 0);
  EXPECT_GT(none, 0);
}

// 845 B parameters on 128 GPUs: what travels between nodes is what the step waits for, so that half the bytes show.
TEST(RecommendSimulation, SixteenBitsHalveWhatIsExchanged) {
  const plan::Job job = clicks_job(65'536);
  plan::Embedding embedding;
  embedding.sharding = plan::TableSharding::whole;
  const cost::Prediction full = simulated("zionex-845b", "zionex-128", 0, job, embedding);
  embedding.forward = plan::PooledType::fp16;
  embedding.backward = plan::PooledType::bf16;
  const cost::Prediction half = simulated("zionex-845b", "zionex-128", 0, job, embedding);
  EXPECT_LT(exchanged(half), 0.65 * exchanged(full)) << "indices stay as they are";
  EXPECT_GT(exchanged(half), 0.45 * exchanged(full));
  EXPECT_LT(half.step_time_s, full.step_time_s);
  std::printf("[ 845 B    ] %.1f ms, in 16 bits %.1f ms; exposed all-to-all %.1f ms, %.1f ms\n", 1e3 * full.step_time_s,
              1e3 * half.step_time_s, 1e3 * full.breakdown.exchange_communication,
              1e3 * half.breakdown.exchange_communication);
  EXPECT_GT(full.breakdown.exchange_communication, half.breakdown.exchange_communication);
}

// Gradients of one step travel while another is computed forward: of what is sent nothing changes but the time.
TEST(RecommendSimulation, AStaleServerHidesItsPushes) {
  plan::Embedding embedding;
  embedding.sharding = plan::TableSharding::whole;
  const plan::Job job = clicks_job(16 * 512);
  const cost::Prediction waits = simulated("zionex-95b", "zion", 16, job, embedding, 0);
  const cost::Prediction stale = simulated("zionex-95b", "zion", 16, job, embedding, 1);
  const cost::Prediction synchronous = simulated("zionex-95b", "zion", 16, job, embedding);
  std::printf("[ 95 B     ] on Zion: %.1f ms; a server of staleness 0 %.1f ms, 1 %.1f ms\n",
              1e3 * synchronous.step_time_s, 1e3 * waits.step_time_s, 1e3 * stale.step_time_s);
  EXPECT_LT(stale.step_time_s, waits.step_time_s);
  EXPECT_DOUBLE_EQ(exchanged(stale), exchanged(waits));
  EXPECT_GT(stale.memory_peak_bytes, waits.memory_peak_bytes) << "versions of weights, lookups in flight";
}

// Each rank has partial sums of all samples. All to all, every rank would send its own out of the node: 128 times the
// bytes of whole tables, whose sums leave one rank. A ring sends the node's once: 16 times.
TEST(RecommendSimulation, RowsAreReducedBeforeTheyLeaveANode) {
  const plan::Job job = clicks_job(65'536);
  const auto sent = [&](plan::TableSharding sharding) {
    plan::Embedding embedding;
    embedding.sharding = sharding;
    const cost::Prediction p = simulated("zionex-95b", "zionex-128", 0, job, embedding);
    double bytes = 0;
    for (const cost::LinkRow& row : p.links)
      if (row.name == "roce") bytes += row.bytes;
    return bytes;
  };
  const double whole = sent(plan::TableSharding::whole), row = sent(plan::TableSharding::row),
               node = sent(plan::TableSharding::node_row);
  std::printf("[ network  ] 95 B: whole %.1f GB, row %.1f GB, node_row %.1f GB\n", whole / 1e9, row / 1e9, node / 1e9);
  EXPECT_GT(row, 4 * whole);
  EXPECT_LT(row, 20 * whole);
  EXPECT_LT(node, 1.5 * whole) << "sums leave a node once, whichever ranks of it have the rows";
}

// Groups within nodes and between equal places of nodes: one rank of each class stands for all.
TEST(RecommendSimulation, NodesThatExchangeSumsAreReplayedAsEveryRankIs) {
  const auto on = testing::cluster("zionex-128", 32);
  for (const plan::TableSharding sharding : {plan::TableSharding::node_row, plan::TableSharding::row}) {
    plan::PlanSpec spec;
    spec.mesh.data = on->size();
    spec.shape.batch = 512 * spec.mesh.data;
    spec.shape.micro_batch = 512;
    spec.embedding.sharding = sharding;
    plan::take_optimizer(spec, clicks_job(spec.shape.batch).training);
    const auto plan = plan::make_plan(testing::model("zionex-95b"), on, spec);
    ASSERT_TRUE(plan) << base::render(plan.error(), false);
    const cost::Pricing pricing(on, testing::stack("generic-recommender"));
    const double one = simulate(*plan, pricing, {.spans = false}).prediction.step_time_s;
    const double all = simulate(*plan, pricing, {.spans = false, .every_rank = true}).prediction.step_time_s;
    EXPECT_EQ(one, all) << plan::name_of(sharding);
  }
}

// The same samples a GPU on eight times as many of them: a step takes longer by what more nodes make of the exchange.
TEST(RecommendSimulation, ScalesNearlyLinearlyAndTheExchangeGrows) {
  plan::Embedding embedding;
  embedding.sharding = plan::TableSharding::automatic;
  const cost::Prediction small = simulated("zionex-95b", "zionex-128", 16, clicks_job(16 * 512), embedding);
  const cost::Prediction large = simulated("zionex-95b", "zionex-128", 128, clicks_job(128 * 512), embedding);
  const double scaling = large.tokens_per_s / small.tokens_per_s;
  std::printf("[ 95 B     ] 16 to 128 GPUs: %.2f times\n", scaling);
  EXPECT_LT(scaling, 8);
  EXPECT_GT(scaling, 3);
}

}  // namespace recommend_search_test
}  // namespace orrery::sim
