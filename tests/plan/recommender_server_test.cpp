// Recommendation models with a parameter server: how old rows and weights are, what waits for its update, what is
// refused, and that the checker sees what is not so.
#include "plan/lower/recommender_server.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/lower/lower.h"
#include "plan/lower/serial.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "plan/spec/plan_file.h"
#include "plan/spec/recommender_rules.h"
#include "plan/spec/table_layout.h"
#include "tests/clusters/support.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace recommender_server_test {

std::string codes_found(const base::Diagnostics& found) {
  std::string all;
  for (const base::Diagnostic& one : found) all += (all.empty() ? "" : " ") + one.code;
  return all;
}

models::Model clicks() {
  models::Model model;
  model.name = "clicks";
  model.family = models::Family::dlrm;
  models::Recommender r;
  r.dense_features = 3;
  r.embedding_dim = 8;
  r.tables = {{50, models::Pooling::sum, 1}, {7, models::Pooling::mean, 3}, {200, models::Pooling::sum, 4}};
  r.bottom_mlp = {16, 8};
  r.top_mlp = {16, 1};
  model.layers = 5;
  model.hidden = 8;
  model.heads = model.kv_heads = model.head_dim = model.ffn_hidden = model.vocab = model.max_sequence = 1;
  model.recommender = r;
  return model;
}

PlanSpec served(int workers, int staleness, TableSharding sharding) {
  PlanSpec spec;
  spec.mesh.data = workers;
  spec.shape.batch = 16;
  spec.shape.micro_batch = 16 / workers;
  spec.shape.sequence = 1;
  spec.states.staleness = staleness;
  spec.states.optimizer = OptimizerKind::rowwise_adagrad;
  spec.embedding.sharding = sharding;
  return spec;
}

base::Result<Plan> try_plan(const PlanSpec& spec) {
  return make_plan(std::make_shared<const models::Model>(clicks()),
                   std::make_shared<const clusters::Cluster>(samples::cpu_cluster(spec.mesh.data)), spec);
}
Schedule schedule_of(const PlanSpec& spec) {
  const auto plan = try_plan(spec);
  EXPECT_TRUE(plan) << (plan ? "" : base::render(plan.error(), false));
  return lower(*plan);
}
Block& block_of(RankClass& c, const std::string& name) {
  return *std::find_if(c.blocks.begin(), c.blocks.end(), [&](const Block& b) { return b.name == name; });
}
const Buffer& buffer_of(const RankClass& c, const std::string& name) {
  return *std::find_if(c.buffers.begin(), c.buffers.end(), [&](const Buffer& b) { return b.name == name; });
}

constexpr TableSharding kShardings[] = {TableSharding::whole, TableSharding::row, TableSharding::column,
                                        TableSharding::replicated, TableSharding::automatic};

TEST(RecommenderServer, RowsAndWeightsAreAsOldAsThePlanSays) {
  for (const TableSharding sharding : kShardings)
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad, OptimizerKind::adam})
      for (const int staleness : {0, 1, 3}) {
        PlanSpec spec = served(4, staleness, sharding);
        spec.states.optimizer = optimizer;
        spec.states.momentum = false;
        SCOPED_TRACE(describe(spec));
        const Schedule schedule = schedule_of(spec);
        EXPECT_EQ(codes_found(check(schedule)), "");
        const auto ages = plan::staleness(schedule, 8);
        for (int t = 0; t < 8; ++t) EXPECT_EQ(ages.front()[static_cast<std::size_t>(t)], std::min(t, staleness));
      }
}

TEST(RecommenderServer, WhatWasLookedUpWaitsForItsUpdateAndNoVersionOfATableIsKept) {
  const Schedule schedule = schedule_of(served(4, 3, TableSharding::row));
  const RankClass& c = schedule.classes.front();
  EXPECT_EQ(buffer_of(c, "lengths").versions, 4);
  EXPECT_EQ(buffer_of(c, "bags").versions, 4);
  EXPECT_EQ(buffer_of(c, "gradients.pooled").versions, 3);
  EXPECT_EQ(buffer_of(c, "bottom.gradients").versions, 3);
  EXPECT_EQ(buffer_of(c, "bottom.stashed").versions, 3);
  EXPECT_EQ(buffer_of(c, "tables").versions, 1);
  EXPECT_EQ(buffer_of(c, "gradients.received").versions, 1);
}

// What overlaps is said by position alone: gradients of one step leave before another's forward pass.
TEST(RecommenderServer, GradientsTravelWhileALaterStepIsComputedForward) {
  const Schedule schedule = schedule_of(served(4, 2, TableSharding::row));
  const RankClass& c = schedule.classes.front();
  std::vector<std::string> steady;
  for (const Entry& entry : c.program)
    if (!entry.opening) steady.push_back(c.blocks[static_cast<std::size_t>(entry.block)].name);
  EXPECT_EQ(steady, (std::vector<std::string>{"push", "start", "forward", "finish", "begin", "backward"}));
}

TEST(RecommenderServer, RowsThatAreReadTooLateAreFound) {
  Schedule schedule = schedule_of(served(4, 1, TableSharding::row));
  RankClass& c = schedule.classes.front();
  Block &forward = block_of(c, "forward"), &finish = block_of(c, "finish");
  const auto updates = std::find_if(finish.steps.begin(), finish.steps.end(),
                                    [](const Step& step) { return step.part == "update_tables"; });
  ASSERT_NE(updates, finish.steps.end());
  Step update = *updates;
  finish.steps.erase(updates);
  Block& push = block_of(c, "push");  // ahead of the lookups of a later step
  push.steps.push_back(update);
  ASSERT_FALSE(forward.steps.empty());
  EXPECT_NE(codes_found(check(schedule)).find("S13"), std::string::npos);
}

TEST(RecommenderServer, AWorkerThatIsLeftOutOrTakenOutOfTurnIsFound) {
  for (const bool leaves_out : {true, false}) {
    Schedule schedule = schedule_of(served(4, 1, TableSharding::whole));
    Block& finish = block_of(schedule.classes.front(), "finish");
    const auto update = std::find_if(finish.steps.begin(), finish.steps.end(),
                                     [](const Step& step) { return step.part == "update_tables"; });
    ASSERT_EQ(update->ops.size(), 4U);
    leaves_out ? update->ops.pop_back() : std::swap(update->ops[1], update->ops[2]);
    EXPECT_EQ(codes_found(check(schedule)), "S14");
  }
}

// It updates nothing, and reads what training has made so far.
TEST(RecommenderServer, AnEvaluationIsSound) {
  for (const TableSharding sharding : kShardings) {
    const auto plan = try_plan(served(4, 2, sharding));
    const Schedule training = lower(*plan), evaluation = lower(*plan, {.forward_only = true});
    EXPECT_EQ(codes_found(check(evaluation)), "");
    for (const Bucket& b : evaluation.classes.front().buckets) {
      const auto of = [&](const Bucket& other) { return other.name == b.name; };
      const auto& all = training.classes.front().buckets;
      EXPECT_EQ(b.elements, std::find_if(all.begin(), all.end(), of)->elements) << b.name;
    }
  }
}

// The bucket of replicated tables is cut where a row ends.
TEST(RecommenderServer, AShardOfReplicatedTablesHasWholeRows) {
  const Schedule schedule = schedule_of(served(4, 1, TableSharding::replicated));
  const RankClass& c = schedule.classes.front();
  const Bucket& tables = c.buckets.back();
  ASSERT_TRUE(tables.embedding);
  EXPECT_EQ(tables.shard_elements() % 8, 0);
  EXPECT_EQ(buffer_of(c, "replicated_tables.states").elements, tables.shard_elements() / 8);
}

TEST(RecommenderServer, WhatItCannotBeCombinedWithIsRefusedByName) {
  const auto refusal = [](PlanSpec spec) {
    const auto plan = try_plan(spec);
    return plan ? "" : codes_found(plan.error());
  };
  EXPECT_EQ(refusal(served(4, 1, TableSharding::row)), "");
  EXPECT_EQ(refusal(served(1, 1, TableSharding::whole)), "P80");
  PlanSpec far = served(4, 1, TableSharding::row);
  far.embedding.tiers = TableTiers({TableTier{Space::host, 0}});
  EXPECT_EQ(refusal(far), "P83");
  PlanSpec zero = served(4, 1, TableSharding::row);
  zero.states.zero_stage = 2;
  EXPECT_NE(refusal(zero).find("P82"), std::string::npos);
  const auto resumed = [](int staleness, TableSharding sharding) {
    return codes_found(refused_resume(try_plan(served(4, staleness, sharding))->spec()));
  };
  EXPECT_EQ(resumed(1, TableSharding::row), "E0670");
  EXPECT_EQ(resumed(0, TableSharding::row), "");
  EXPECT_EQ(resumed(2, TableSharding::replicated), "");
  const auto serial = serial_program(*try_plan(served(4, 1, TableSharding::row)), samples::cpu_cluster(1));
  ASSERT_FALSE(serial);
  EXPECT_EQ(codes_found(serial.error()), "P94");
}

TEST(RecommenderServer, APlanFileKeepsIt) {
  const auto plan = try_plan(served(4, 3, TableSharding::row));
  ASSERT_TRUE(plan);
  PlanFile file;
  file.job.model = "clicks";
  file.job.cluster = "localhost-4";
  file.job.batch = 16;
  file.job.sequence = 1;
  file.job.training.optimizer.kind = OptimizerKind::rowwise_adagrad;
  file.model = clicks();
  file.cluster = clusters::testing::catalog("localhost-4");
  file.spec = plan->spec();
  const auto read = parse_plan_file(write_plan_file(file), "plan.yaml");
  ASSERT_TRUE(read) << base::render(read.error(), false);
  EXPECT_EQ(read->spec, plan->spec());
  EXPECT_NE(describe(read->spec).find("parameter server of staleness 3"), std::string::npos);
}

}  // namespace recommender_server_test
}  // namespace orrery::plan
