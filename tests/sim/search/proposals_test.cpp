/// What the search proposes of its own accord: parts of a sequence, chunks of layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/search/search.h"
#include "sim/search/space.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace proposals_test {

/// Llama 3.1 405B (Grattafiori et al. 2024, table 3): 126 layers.
std::shared_ptr<models::Model> llama_405b() {
  const auto read = models::parse_model(
      "family: llama\nlayers: 126\nhidden: 16384\nheads: 128\nkv_heads: 8\nffn_hidden: 53248\nvocab: 128256\n"
      "max_sequence: 131072\n",
      "llama-405b.yaml");
  if (!read) throw std::runtime_error(base::render(read.error(), false));
  return std::make_shared<models::Model>(*read);
}

plan::Job long_job(std::int64_t batch, std::int64_t sequence) {
  plan::Job job;
  job.batch = batch, job.sequence = sequence;
  job.precision = models::DType::bf16;
  return job;
}

/// What software proposes that can do all there is.
cost::Stack software(bool flash = true) {
  cost::Stack stack;
  stack.flash = flash;
  return stack;
}

std::set<int> contexts(const plan::Job& job, const models::Model& model, bool flash = true) {
  std::set<int> found;
  for (const plan::PlanSpec& s : space_of(*testing::cluster("hgx-h100", 64), model, job, software(flash)))
    found.insert(s.mesh.context);
  return found;
}

TEST(Proposals, CutASequenceAsLongAsEachRankKeepsMuchOfIt) {
  const auto model = llama_405b();
  EXPECT_EQ(contexts(long_job(64, 4096), *model), std::set<int>{1});
  EXPECT_EQ(contexts(long_job(64, 8192), *model), (std::set<int>{1, 2}));
  EXPECT_EQ(contexts(long_job(64, 65536), *model), (std::set<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(contexts(long_job(64, 8193), *model), std::set<int>{1}) << "of an odd length";
  EXPECT_EQ(contexts(long_job(64, 8192), *model, false), std::set<int>{1}) << "its parts are merged by row statistics";
  plan::Job job = long_job(64, 65536);
  job.bounds.mesh.context = {1, 4};
  EXPECT_EQ(contexts(job, *model), (std::set<int>{1, 4}));
  job.bounds.mesh.context = {};
  job.bounds.mesh.data = {2}, job.bounds.mesh.tensor = {8}, job.bounds.mesh.pipeline = {4};
  EXPECT_EQ(contexts(job, *model), std::set<int>{1}) << "a job that fixes the mesh means it";
}

using Layers = std::set<std::pair<int, bool>>;  // chunks of a stage, and whether the ends count as layers

Layers layers(const models::Model& model, int pipeline, const plan::Job& job) {
  Layers found;
  for (const plan::PlanSpec& s : space_of(*testing::cluster("hgx-h100", 64), model, job, software()))
    if (s.mesh.pipeline == pipeline) found.insert({s.stages.virtual_stages, s.stages.ends_as_layers});
  return found;
}

TEST(Proposals, PartitionStatesInAPipelineAsTheSoftwareDoesThere) {
  const auto model = llama_405b();
  const auto stages = [&](const cost::Stack& stack, bool piped) {
    std::set<int> found;
    for (const plan::PlanSpec& s : space_of(*testing::cluster("hgx-h100", 64), *model, long_job(64, 4096), stack))
      if ((s.mesh.pipeline > 1) == piped && s.mesh.replicas() > 1) found.insert(s.states.zero_stage);
    return found;
  };
  const cost::Stack titan = testing::stack("torchtitan-2024");
  EXPECT_EQ(stages(titan, false), (std::set<int>{0, 2, 3}));
  EXPECT_EQ(stages(titan, true), (std::set<int>{1})) << "a stage that it has in pipelines alone; DDP stands alone";
  cost::Stack anything = titan;
  anything.can.replicas_beside = true;
  EXPECT_EQ(stages(anything, true), (std::set<int>{0, 1}));
}

TEST(Proposals, AreNoneThatTheSoftwareRefusesBesideTensorParallelism) {
  const auto model = llama_405b();
  const auto odd = [&](const cost::Stack& stack) {
    std::size_t whole = 0, replicated = 0;
    for (const plan::PlanSpec& s : space_of(*testing::cluster("hgx-h100", 64), *model, long_job(64, 4096), stack)) {
      whole += s.mesh.tensor > 1 && !s.mesh.sequence_parallel ? 1 : 0;
      replicated += s.states.zero_stage == 0 && s.mesh.replicas() > 1 && s.mesh.ranks() > s.mesh.data ? 1 : 0;
    }
    return std::pair(whole > 0, replicated > 0);
  };
  cost::Stack stack = software();
  EXPECT_EQ(odd(stack), std::pair(true, true));
  stack.can.whole_rows = false;
  EXPECT_EQ(odd(stack), std::pair(false, true));
  stack.can.replicas_beside = false;
  EXPECT_EQ(odd(stack), std::pair(false, false));
}

TEST(Proposals, PartitionCheckpointsWhereRowsCannotBeDivided) {
  const auto model = llama_405b();
  const auto partitioned = [&](const cost::Stack& stack, const plan::Job& job) {
    std::size_t count = 0;
    for (const plan::PlanSpec& s : space_of(*testing::cluster("hgx-h100", 64), *model, job, stack)) {
      count += s.recomputation.partition_checkpoints ? 1 : 0;
      EXPECT_TRUE(!s.recomputation.partition_checkpoints ||
                  (s.mesh.tensor > 1 && s.recomputation.what == plan::Recompute::full));
    }
    return count;
  };
  cost::Stack stack = software();
  stack.can.partition_checkpoints = true;
  plan::Job job = long_job(64, 4096);
  job.bounds.mesh.context = {1};
  EXPECT_EQ(partitioned(stack, job), 0U) << "sequence parallelism needs as little memory, and fewer messages";
  stack.can.sequence_parallel = false;
  EXPECT_GT(partitioned(stack, job), 0U);
  stack.can.partition_checkpoints = false;
  EXPECT_EQ(partitioned(stack, job), 0U);
  job.bounds.recomputation.what = {plan::Recompute::full};
  job.bounds.mesh.tensor = {8}, job.bounds.recomputation.partition_checkpoints = {true};
  EXPECT_GT(partitioned(stack, job), 0U) << "a job that says so means it";
}

TEST(Proposals, HaveRoomForWhateverTokensChooseWhereThisExecutorRuns) {
  const auto mixture = testing::model("tiny-moe");
  plan::Job job;
  job.batch = 8, job.sequence = 128;
  job.bounds.mesh.expert = {4}, job.bounds.mesh.data = {4};
  const auto bounds = [&](const cost::Stack& stack) {
    std::set<double> found;
    for (const plan::PlanSpec& s : space_of(*testing::cluster("localhost-4"), *mixture, job, stack))
      found.insert(s.tokens.bound);
    return found;
  };
  EXPECT_EQ(bounds(testing::stack("orrery-cpu")), std::set<double>{4});
  EXPECT_EQ(bounds(software()), std::set<double>{2});
  job.bounds.tokens.bound = 1.5;
  EXPECT_EQ(bounds(testing::stack("orrery-cpu")), std::set<double>{1.5});
}

// Gathers of ZeRO 3 stay within a node, of experts too, however many ranks divide these; Muon and fp16 need no plan of
// their own.
TEST(Proposals, PartitionStatesOfAMixtureWithinItsNodes) {
  const auto mixture = testing::model("mixtral-8x7b");
  const auto cluster = testing::cluster("hgx-h100", 16);
  plan::Job job = long_job(64, 4096);
  job.bounds.mesh.pipeline = {1};
  std::set<std::pair<int, int>> found;  // ranks that divide experts, and of a sub-group
  for (const plan::PlanSpec& s : space_of(*cluster, *mixture, job, software()))
    if (s.states.zero_group > 0 && s.mesh.tensor == 1 && plan::make_plan(mixture, cluster, s))
      found.insert({s.mesh.expert, s.states.zero_group});
  EXPECT_EQ(found, (std::set<std::pair<int, int>>{{1, 8}, {2, 8}, {4, 8}, {8, 8}}));
}

TEST(Proposals, BalanceExpertsOverAStepOnlyWhereThisExecutorRuns) {
  const auto mixture = testing::model("tiny-moe");
  const auto cluster = testing::cluster("localhost-4");
  plan::Job job;
  job.batch = 8, job.sequence = 128;
  job.bounds.mesh.data = {4}, job.bounds.mesh.pipeline = {1};
  const auto orders = [&](const cost::Stack& stack) {
    std::set<plan::Order> found;
    for (const plan::PlanSpec& s : space_of(*cluster, *mixture, job, stack)) found.insert(s.stages.order);
    return found;
  };
  EXPECT_EQ(orders(testing::stack("orrery-cpu")), std::set<plan::Order>{plan::Order::gpipe});
  EXPECT_EQ(orders(software()), std::set<plan::Order>{plan::Order::one_f_one_b});
  job.bounds.stages.order = {plan::Order::one_f_one_b};
  job.bounds.mesh.pipeline = {4}, job.bounds.mesh.data = {1}, job.bounds.shape.micro_batch = {1};
  const auto best = [&](const cost::Stack& stack) {
    return search(mixture, cluster, job, cost::Pricing(cluster, stack), {}).plans.size();
  };
  EXPECT_EQ(best(testing::stack("orrery-cpu")), 0U) << "refused: P124";
  cost::Stack other = testing::stack("orrery-cpu");
  other.own = false;
  EXPECT_GT(best(other), 0U);
}

TEST(Proposals, CountTheEndsAsLayersWhereOnlyThatMakesChunksEqual) {
  const auto model = llama_405b();
  const plan::Job job = long_job(512, 8192);
  EXPECT_EQ(layers(*model, 8, job), (Layers{{1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {16, true}}));
  EXPECT_EQ(layers(*model, 2, job), (Layers{{1, false}, {3, false}, {7, false}, {9, false}})) << "63 blocks a stage";
  EXPECT_EQ(layers(*model, 1, job), (Layers{{1, false}}));
  plan::Job fixed = job;
  fixed.bounds.stages.ends_as_layers = false;
  EXPECT_EQ(layers(*model, 8, fixed), (Layers{{1, false}}));
  fixed.bounds.stages.ends_as_layers = true;
  EXPECT_EQ(layers(*model, 8, fixed), (Layers{{1, true}, {2, true}, {4, true}, {8, true}, {16, true}}));
  model->layers = 80;  // Llama 3.1 70B: NVIDIA's recipes have chunks of one block, 20 of them on each of four stages
  EXPECT_TRUE(layers(*model, 4, job).count({20, false}));
  EXPECT_FALSE(layers(*model, 4, job).count({1, true}));
}

TEST(Proposals, AreNoSlowerThanNvidiasRecipeForLlama405B) {
  // NVIDIA's Megatron Bridge 25.11, H100: tensor 8, pipeline 8, context 2, eight chunks.
  const auto model = llama_405b();
  const auto cluster = testing::cluster("hgx-h100-1024");
  const cost::Pricing pricing(cluster, testing::stack("megatron-core"));
  const cost::SearchResult found = search(model, cluster, long_job(512, 8192), pricing, {.top = 3, .replay = 3});
  ASSERT_FALSE(found.plans.empty());
  plan::PlanSpec recipe;
  recipe.mesh.data = 8, recipe.mesh.tensor = 8, recipe.mesh.pipeline = 8, recipe.mesh.context = 2;
  recipe.stages.virtual_stages = 8,
  recipe.stages.ends_as_layers = recipe.mesh.sequence_parallel = recipe.states.overlap_gradients = true;
  recipe.states.zero_stage = 1, recipe.shape.batch = 512, recipe.shape.sequence = 8192,
  recipe.numerics.precision = models::DType::bf16;
  const auto made = plan::make_plan(model, cluster, recipe);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  const cost::Prediction theirs = simulate(*made, pricing, {.spans = false}).prediction;
  ASSERT_LE(theirs.memory_peak_bytes, theirs.memory_capacity_bytes);
  EXPECT_LE(found.plans.front().step_time_s, 1.001 * theirs.step_time_s);
}

}  // namespace proposals_test
}  // namespace orrery::sim
