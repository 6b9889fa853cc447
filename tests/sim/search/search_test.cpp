/// The plan search: its space, its answers, its refusals.
#include "sim/search/search.h"
#include "sim/search/share_out.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "sim/search/space.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace search_test {

plan::Job tiny_job() {
  plan::Job job;
  job.batch = 16;
  job.sequence = 64;
  return job;
}

cost::SearchResult search_tiny(const plan::Job& job, const SearchOptions& options = {}, double memory = 0) {
  auto cluster = std::make_shared<clusters::Cluster>(*testing::cluster("localhost-4"));
  if (memory > 0) cluster->devices[0].memory = base::Bytes{memory};
  const cost::Pricing pricing(cluster, testing::stack("orrery-cpu"));
  return search(testing::model("tiny-gpt"), cluster, job, pricing, options);
}

TEST(Divisors, AreAllOfThemAscending) {
  EXPECT_EQ(divisors(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(divisors(9), (std::vector<std::int64_t>{1, 3, 9}));
}

TEST(SearchSpace, HoldsEveryMeshThatFillsTheCluster) {
  const auto cluster = testing::cluster("localhost-4");
  plan::Job job = tiny_job();
  job.bounds.shape.micro_batch = {1};
  job.bounds.states.zero_stage = {0};
  job.bounds.stages.order = {plan::Order::gpipe};
  job.bounds.recomputation.what = {plan::Recompute::none};
  // 4 = d t p: (1,1,4) in three orders, (1,2,2) in three.
  // Those with a tensor group (three) also with sequence parallelism.
  EXPECT_EQ(space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{}).size(), 9u);
  job.bounds.mesh.sequence_parallel = {false};
  EXPECT_EQ(space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{}).size(), 6u);
  // Unfused attention has its core to recompute.
  cost::Stack unfused;
  unfused.flash = false;
  job.bounds.recomputation.what.clear();
  EXPECT_EQ(space_of(*cluster, *testing::model("tiny-gpt"), job, cost::Stack{}).size(), 12u);
  EXPECT_EQ(space_of(*cluster, *testing::model("tiny-gpt"), job, unfused).size(), 18u);
}

TEST(SearchSpace, ProposesChunksThatLeaveEqualStagesWhereTheyCanRun) {
  const auto cluster = testing::cluster("localhost-4");
  plan::Job job = tiny_job();
  job.bounds.mesh.tensor = {1};
  job.bounds.shape.micro_batch = {1};
  auto model = std::make_shared<models::Model>(*testing::model("tiny-gpt"));
  model->layers = 16;
  const auto chunks = [&](int pipeline) {
    std::set<int> found;
    for (const plan::PlanSpec& s : space_of(*cluster, *model, job, cost::Stack{}))
      if (s.mesh.pipeline == pipeline) {
        found.insert(s.stages.virtual_stages);
        EXPECT_TRUE(s.stages.virtual_stages == 1 || s.stages.order == plan::Order::one_f_one_b);
      }
    return found;
  };
  EXPECT_EQ(chunks(1), std::set<int>{1});
  EXPECT_EQ(chunks(2), (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(chunks(4), (std::set<int>{1, 2, 4}));
  job.batch = 6;  // four stages do not divide six micro-batches
  EXPECT_EQ(chunks(4), std::set<int>{1});
  job.batch = 16;
  job.bounds.mesh.pipeline = {4};  // a job that fixes its stages means them as they stand
  EXPECT_EQ(chunks(4), std::set<int>{1});
  job.bounds.stages.virtual_stages = {2};
  job.bounds.stages.order = {plan::Order::one_f_one_b};
  EXPECT_EQ(chunks(4), std::set<int>{2});
}

TEST(Search, RanksByTheReplayAndCountsEveryPoint) {
  const cost::SearchResult r = search_tiny(tiny_job());
  ASSERT_FALSE(r.plans.empty());
  EXPECT_EQ(r.simulated, 10);
  for (int i = 1; i < 10; ++i)
    EXPECT_LE(r.plans[static_cast<std::size_t>(i - 1)].step_time_s, r.plans[static_cast<std::size_t>(i)].step_time_s);
  std::int64_t rejected = 0;
  for (const auto& [reason, count] : r.rejected) rejected += count;
  EXPECT_EQ(r.candidates, r.feasible + rejected);
  EXPECT_TRUE(r.nearest.empty());
  ASSERT_TRUE(r.optimality_gap.has_value());
  EXPECT_FALSE(r.interrupted);
}

TEST(Search, TellsHowMuchBetterAPlanMayBeThatWasNotReplayed) {
  const cost::SearchResult all = search_tiny(tiny_job(), {.top = 1'000'000, .replay = 0});
  EXPECT_FALSE(all.optimality_gap) << "nothing was replayed: nothing is known of the replay's best";
  const cost::SearchResult one = search_tiny(tiny_job(), {.top = 2, .replay = 1});
  ASSERT_TRUE(one.optimality_gap.has_value());
  ASSERT_EQ(one.plans.size(), 2U);
  EXPECT_DOUBLE_EQ(*one.optimality_gap, std::max(0.0, one.plans[0].step_time_s / all.plans[1].step_time_s - 1));
  const cost::SearchResult whole =
      search_tiny(tiny_job(), {.top = 1'000'000, .replay = static_cast<int>(all.plans.size())});
  EXPECT_EQ(whole.optimality_gap, 0) << "all were replayed";
}

TEST(Search, SaysThatItWasInterruptedAndReplaysItsBest) {
  std::atomic<bool> stop = false;
  SearchOptions options;
  options.stop = &stop;
  options.progress = [&](const SearchProgress& state) { stop = stop || state.done > 0; };
  const cost::SearchResult r = search_tiny(tiny_job(), options);
  EXPECT_TRUE(r.interrupted);
  EXPECT_FALSE(r.optimality_gap.has_value());
  EXPECT_LT(r.evaluated, search_tiny(tiny_job()).evaluated);
  ASSERT_FALSE(r.plans.empty());
  EXPECT_EQ(r.simulated, 1);
}

TEST(Search, FindsWhatReplayingEverythingFinds) {
  const auto model = testing::model("tiny-gpt");
  const auto cluster = testing::cluster("localhost-4");
  const cost::Pricing pricing(cluster, testing::stack("orrery-cpu"));
  const plan::Job job = tiny_job();
  double best = 1e300;
  for (const plan::PlanSpec& spec : space_of(*cluster, *model, job, cost::Stack{})) {
    const auto made = plan::make_plan(model, cluster, spec);
    if (made) best = std::min(best, simulate(*made, pricing, {.spans = false}).prediction.step_time_s);
  }
  const cost::SearchResult r = search(model, cluster, job, pricing, {});
  EXPECT_LE(r.plans.front().step_time_s, 1.02 * best);
}

TEST(Search, FindsWhatTimingEveryPlanFinds) {
  const auto model = testing::model("tiny-gpt");
  const auto cluster = testing::cluster("localhost-4");
  const cost::Pricing pricing(cluster, testing::stack("orrery-cpu"));
  cost::Estimator estimator(model, pricing, shared_links(pricing));
  plan::Job job = tiny_job();
  job.bounds.recomputation.what = {plan::Recompute::none, plan::Recompute::full};
  job.bounds.recomputation.layers = model->layers;  // all, and no search for fewer
  std::vector<double> times;
  for (const plan::PlanSpec& spec : space_of(*cluster, *model, job, cost::Stack{}))
    if (const auto made = plan::make_plan(model, cluster, spec)) times.push_back(estimator.time(*made).step_time);
  std::sort(times.begin(), times.end());
  const int top = 12;
  ASSERT_GT(times.size(), 10U * top) << "most need not be timed";
  for (const int threads : {1, 2}) {
    const cost::SearchResult r = search(model, cluster, job, pricing, {.top = top, .replay = 0, .threads = threads});
    ASSERT_EQ(r.plans.size(), static_cast<std::size_t>(top));
    for (std::size_t i = 0; i < r.plans.size(); ++i) EXPECT_DOUBLE_EQ(r.plans[i].step_time_s, times[i]) << i;
  }
}

TEST(Search, KeepsToTheJobsBounds) {
  plan::Job job = tiny_job();
  job.bounds.mesh.data = {2};
  job.bounds.mesh.tensor = {1, 2};
  job.bounds.states.zero_stage = {1};
  job.bounds.recomputation.what = {plan::Recompute::full};
  const cost::SearchResult r = search_tiny(job);
  ASSERT_FALSE(r.plans.empty());
  for (const cost::Prediction& p : r.plans) {
    EXPECT_EQ(p.spec.mesh.data, 2);
    EXPECT_EQ(p.spec.states.zero_stage, 1);
    EXPECT_EQ(p.spec.recomputation.what, plan::Recompute::full);
  }
}

TEST(Search, RanksByMemoryWhenAsked) {
  plan::Job job = tiny_job();
  job.objective = plan::Objective::memory;
  const cost::SearchResult r = search_tiny(job);
  ASSERT_GT(r.plans.size(), 3u);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_LE(r.plans[i - 1].memory_peak_bytes, r.plans[i].memory_peak_bytes);
  EXPECT_LT(r.plans.front().memory_peak_bytes, search_tiny(tiny_job()).plans.front().memory_peak_bytes);
}

TEST(Search, TakesPlansThatFitWithTheProbabilityThatTheJobWants) {
  const auto model = testing::model("llama2-7b");
  const auto cluster = testing::cluster("hgx-h100", 8);
  const cost::Stacks stacks(testing::stack("megatron-core"));
  cost::Intervals intervals;
  intervals.spreads = {{"", false, {0.9, 1.1}, {0.8, 1.25}, 0}};
  const cost::Prices prices(cluster, stacks, {}, intervals);
  plan::Job job;
  job.batch = 64, job.sequence = 4096, job.precision = models::DType::bf16;
  const double capacity = cluster->device().memory.value;
  const auto surest = [&](const cost::SearchResult& found) {
    double least = 1;
    for (const cost::Prediction& p : found.plans)
      least = std::min(least, cost::fits_probability(p.memory_peak_bytes, capacity, intervals.spreads[0].memory));
    return least;
  };
  const SearchOptions some{.top = 40, .replay = 4};
  const cost::SearchResult sure = search(model, cluster, job, prices, some);
  EXPECT_EQ(sure.fits_probability, 0.95);
  EXPECT_GE(surest(sure), 0.95);
  EXPECT_GT(sure.rejected.at("memory: fits with too low a probability"), 0);

  job.fits_probability = 0;
  const cost::SearchResult bold = search(model, cluster, job, prices, some);
  EXPECT_EQ(bold.fits_probability, 0);
  EXPECT_GT(bold.feasible, sure.feasible);
  EXPECT_LE(bold.plans.front().step_time_s, sure.plans.front().step_time_s);

  // Where no plan is as sure, those predicted to fit are taken.
  job.bounds = {};
  const plan::PlanSpec& full = std::max_element(bold.plans.begin(), bold.plans.end(), [](const auto& a, const auto& b) {
                                 return a.memory_peak_bytes < b.memory_peak_bytes;
                               })->spec;
  ASSERT_LT(surest(bold), 0.95);
  job.fits_probability = 0.95;
  job.bounds.mesh.data = {full.mesh.data}, job.bounds.mesh.tensor = {full.mesh.tensor},
  job.bounds.mesh.pipeline = {full.mesh.pipeline};
  job.bounds.mesh.context = {full.mesh.context},
  job.bounds.shape.micro_batch = {static_cast<int>(full.shape.micro_batch)};
  job.bounds.states.zero_stage = {full.states.zero_stage}, job.bounds.recomputation.what = {full.recomputation.what};
  job.bounds.recomputation.layers = full.recomputation.layers.value_or(model->layers);
  job.bounds.numerics.loss_chunks = {static_cast<int>(full.numerics.loss_chunks)};
  job.bounds.stages.virtual_stages = {full.stages.virtual_stages},
  job.bounds.mesh.sequence_parallel = {full.mesh.sequence_parallel};
  const cost::SearchResult none = search(model, cluster, job, prices, some);
  EXPECT_EQ(none.fits_probability, 0);
  ASSERT_FALSE(none.plans.empty());
  EXPECT_LT(surest(none), 0.95);
}

TEST(Search, RanksByEnergyWhenAsked) {
  plan::Job job = tiny_job();
  job.objective = plan::Objective::energy;
  const cost::SearchResult r = search_tiny(job, {.top = 1'000'000, .replay = 0});
  ASSERT_GT(r.plans.size(), 3u);
  bool slower_first = false;
  for (std::size_t i = 1; i < r.plans.size(); ++i) {
    EXPECT_LE(r.plans[i - 1].energy_per_step_j, r.plans[i].energy_per_step_j);
    slower_first = slower_first || r.plans[i - 1].step_time_s > r.plans[i].step_time_s;
  }
  EXPECT_TRUE(slower_first) << "a step that waits takes less than one that computes as long";
}

TEST(Search, SaysWhyNothingFitsAndWhatWould) {
  plan::Job job = tiny_job();
  job.bounds.mesh.data = {4};
  job.bounds.states.zero_stage = {0};
  const double tight = 10e6;  // a CPU rank's memory is its arena alone
  const cost::SearchResult r = search_tiny(job, {}, tight);
  EXPECT_TRUE(r.plans.empty());
  EXPECT_EQ(r.feasible, 0);
  ASSERT_GE(r.nearest.size(), 2u);
  EXPECT_NE(r.nearest[0].find("needs"), std::string::npos);
  const std::string all = std::accumulate(r.nearest.begin(), r.nearest.end(), std::string());
  EXPECT_NE(all.find("plan.zero_stage"), std::string::npos) << all;
}

TEST(Search, SaysWhatANodeLacksWhereThePlanFitsTheDevices) {
  auto cluster = std::make_shared<clusters::Cluster>(*testing::cluster("dgx-a100", 1));
  cluster->host_memory.capacity = base::Bytes{64e9};
  const cost::Pricing pricing(cluster, testing::stack("deepspeed"));
  plan::Job job = tiny_job();
  job.precision = models::DType::bf16, job.sequence = 1024;
  job.bounds.offload.optimizer = job.bounds.offload.parameters = {plan::Space::host};
  const auto said = [&] {
    const cost::SearchResult r = search(testing::model("llama3-8b"), cluster, job, pricing, {});
    EXPECT_TRUE(r.plans.empty());
    return std::accumulate(r.nearest.begin(), r.nearest.end(), std::string());
  };
  EXPECT_NE(said().find("fits the devices, but offloads"), std::string::npos) << said();
  EXPECT_NE(said().find("host memory of 1"), std::string::npos) << said();  // 8 billion parameters, 16 bytes each
  EXPECT_EQ(said().find("more devices"), std::string::npos) << said();
  cluster->host_memory.capacity = base::Bytes{512e9};
  EXPECT_FALSE(search(testing::model("llama3-8b"), cluster, job, pricing, {}).plans.empty());
}

TEST(Search, RecomputesSomeBlocksOnlyWhereTheSoftwareCan) {
  const auto cluster = testing::cluster("hgx-h100");
  plan::Job job = tiny_job();
  job.precision = models::DType::bf16, job.batch = 64, job.sequence = 4096;
  job.bounds.mesh.data = {8};
  const auto some = [&](const char* stack) {
    const cost::Pricing pricing(cluster, testing::stack(stack));
    const cost::SearchResult r = search(testing::model("llama3-8b"), cluster, job, pricing, {});
    EXPECT_FALSE(r.plans.empty());
    return std::ranges::any_of(r.plans, [](const auto& p) { return p.spec.recomputation.layers.has_value(); });
  };
  EXPECT_FALSE(some("deepspeed"));
  EXPECT_TRUE(some("megatron-core"));
}

TEST(Search, SaysWhichTwoDegreesHaveToGiveWayTogether) {
  auto model = std::make_shared<models::Model>(*testing::model("tiny-gpt"));
  model->kv_heads = 1;
  const auto cluster = testing::cluster("localhost-4");
  const cost::Pricing pricing(cluster, testing::stack("orrery-cpu"));
  plan::Job job = tiny_job();
  job.bounds.mesh.data = {2}, job.bounds.mesh.tensor = {2}, job.bounds.mesh.pipeline = {1};
  const cost::SearchResult r = search(model, cluster, job, pricing, {});
  EXPECT_TRUE(r.plans.empty());
  EXPECT_EQ(r.nearest,
            (std::vector<std::string>{"leaving plan.data and plan.tensor free would make a plan possible",
                                      "leaving plan.tensor and plan.pipeline free would make a plan possible"}));
  job.batch = 15;  // and then nothing divides it
  job.bounds.shape.micro_batch = {2};
  const cost::SearchResult none = search(model, cluster, job, pricing, {});
  ASSERT_EQ(none.nearest.size(), 1u);
  EXPECT_NE(none.nearest[0].find("the most frequent obstacle is P"), std::string::npos) << none.nearest[0];
}

TEST(Search, SaysWhenABatchCannotBeDivided) {
  plan::Job job = tiny_job();
  job.bounds.mesh.data = {4};
  job.bounds.mesh.tensor = {1};
  job.bounds.mesh.pipeline = {1};
  job.batch = 15;
  const cost::SearchResult r = search_tiny(job);
  EXPECT_TRUE(r.plans.empty());
  EXPECT_EQ(r.rejected.begin()->first.substr(0, 3), "P09");
  EXPECT_FALSE(r.nearest.empty());
}

TEST(Search, SaysInNumbersWhichDegreesDoNotFillTheCluster) {
  plan::Job job = tiny_job();
  const auto obstacle = [&] {
    return search(testing::model("tiny-gpt"), testing::cluster("localhost-4"), job,
                  cost::Pricing(testing::cluster("localhost-4"), testing::stack("orrery-cpu")), {})
        .obstacle;
  };
  job.bounds.mesh.data = {4}, job.bounds.mesh.tensor = {2};
  EXPECT_EQ(obstacle(), "data 4 x tensor 2 takes 8 devices, but the cluster has 4");
  job.bounds.mesh.data = {}, job.bounds.mesh.tensor = {3};
  EXPECT_EQ(obstacle(), "tensor 3 does not divide the cluster's 4 devices; 1, 2, 4 do");
  job.bounds.mesh.tensor = {2};
  EXPECT_EQ(obstacle(), "");
  job.bounds.mesh.data = {4}, job.bounds.mesh.tensor = {1}, job.bounds.mesh.pipeline = {1}, job.batch = 15;
  EXPECT_NE(obstacle().find("15"), std::string::npos) << obstacle();
}

TEST(SearchSpace, OneReplicaWithZeroOneIsOneWithoutZero) {
  plan::Job job = tiny_job();
  job.bounds.mesh.tensor = {4}, job.bounds.states.zero_stage = {1};
  const auto space = space_of(*testing::cluster("localhost-4"), *testing::model("tiny-gpt"), job, cost::Stack{});
  ASSERT_FALSE(space.empty());
  for (const plan::PlanSpec& spec : space) EXPECT_EQ(spec.states.zero_stage, spec.mesh.data > 1 ? 1 : 0);
}

TEST(SearchSpace, ProposesSubGroupsOfANodeWhereZeroThreeSpansNodes) {
  plan::Job job = tiny_job();
  job.batch = 32;
  job.bounds.mesh.tensor = {1}, job.bounds.mesh.pipeline = {1}, job.bounds.shape.micro_batch = {1};
  const auto groups = [&](int devices, int tensor, int zero) {
    job.bounds.mesh.tensor = {tensor}, job.bounds.states.zero_stage = {zero};
    std::set<int> out;
    for (const plan::PlanSpec& spec :
         space_of(*testing::cluster("hgx-h100-1024", devices), *testing::model("tiny-gpt"), job, cost::Stack{}))
      out.insert(spec.states.zero_group);
    return out;
  };
  EXPECT_EQ(groups(32, 1, 3), (std::set<int>{0, 8}));
  EXPECT_EQ(groups(32, 2, 3), (std::set<int>{0, 4}));
  EXPECT_EQ(groups(8, 1, 3), std::set<int>{0}) << "the replicas are a node's";
  EXPECT_EQ(groups(32, 1, 2), std::set<int>{0});
  job.bounds.states.zero_group = {16};
  EXPECT_EQ(groups(32, 1, 2), std::set<int>{16});
  EXPECT_EQ(groups(32, 1, 0), std::set<int>{16}) << "refused by name, not passed over";
  job.bounds.states.zero_group = {0};
  EXPECT_EQ(groups(32, 1, 3), std::set<int>{0});
}

TEST(Search, StopsWhenTold) {
  std::atomic<bool> stop{false};
  SearchOptions options;
  int told = 0;
  options.stop = &stop;
  options.progress = [&](const SearchProgress& p) {
    ++told;
    if (p.done > p.total / 2) stop = true;
  };
  const cost::SearchResult r = search_tiny(tiny_job(), options);
  EXPECT_GT(told, 1);
  EXPECT_LT(r.evaluated, search_tiny(tiny_job()).evaluated);
  EXPECT_EQ(r.simulated, 1) << "the best, which is what the user gets";
}

TEST(Search, PlansGpt3OnAThousandGpusAsPeopleDid) {
  const auto model = testing::model("gpt3-175b");
  const auto cluster = testing::cluster("selene-1024");
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  plan::Job job;
  job.batch = 1536;
  job.sequence = 2048;
  job.precision = models::DType::fp16;
  const cost::SearchResult r = search(model, cluster, job, pricing, {.top = 5, .replay = 0});
  ASSERT_FALSE(r.plans.empty());
  EXPECT_GT(r.candidates, 10000);
  EXPECT_GT(r.rejected.size(), 1u);
  const cost::Prediction& best = r.plans.front();
  EXPECT_LE(best.spec.mesh.tensor, 8) << "tensor parallelism stays in the node (Narayanan et al. 2021, takeaway 1)";
  EXPECT_GT(best.mfu, 0.4);
  EXPECT_LT(best.mfu, 0.75);
  EXPECT_LE(best.memory_peak_bytes, best.memory_capacity_bytes);
}

/// Korthikanti et al. 2022, table 5: GPT-3 175B on 64 A100, tensor 8, pipeline 8, batch 64: 18.13 s with full
/// recomputation. They interleave three virtual stages, which is not lowered yet; its smaller bubble ((p-1)/(3m)
/// instead of (p-1)/m) is taken from ours.
TEST(Replay, TakesAsLongAsMegatronMeasured) {
  const auto model = testing::model("gpt3-175b");
  const auto cluster = testing::cluster("dgx-a100-80gb", 64);
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  plan::PlanSpec spec;
  spec.mesh.tensor = spec.mesh.pipeline = 8;
  spec.shape.batch = 64;
  spec.shape.sequence = 2048;
  spec.numerics.precision = models::DType::fp16;
  spec.recomputation.what = plan::Recompute::full;
  spec.numerics.flash = false;
  const auto made = plan::make_plan(model, cluster, spec);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  const cost::Prediction p = simulate(*made, pricing, {.spans = false}).prediction;
  const double interleaved = p.step_time_s * (1 - p.bubble_fraction * 2 / 3);
  EXPECT_NEAR(interleaved / 18.13, 1, 0.10) << interleaved << " s, not interleaved " << p.step_time_s << " s";
}

TEST(Search, FindsTheSameWithAnyNumberOfThreads) {
  const auto cluster = testing::cluster("dgx-a100", 16);
  const auto model = testing::model("gpt2-1558m");
  plan::Job job;
  job.batch = 64, job.sequence = 1024;
  job.precision = models::DType::bf16;
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  const auto found = [&](int threads) {
    SearchOptions options;
    options.threads = threads;
    return search(model, cluster, job, pricing, options);
  };
  const cost::SearchResult one = found(1), four = found(4);
  EXPECT_GT(one.feasible, 100);
  EXPECT_EQ(one.feasible, four.feasible);
  EXPECT_EQ(one.evaluated, four.evaluated);
  EXPECT_EQ(one.rejected, four.rejected);
  ASSERT_EQ(one.plans.size(), four.plans.size());
  for (std::size_t i = 0; i < one.plans.size(); ++i) {
    EXPECT_EQ(one.plans[i].spec, four.plans[i].spec) << i;
    EXPECT_EQ(one.plans[i].step_time_s, four.plans[i].step_time_s) << i;
  }
}

TEST(Search, PassesOnWhatGoesWrongInAnyThread) {
  struct Worker {
    void operator()(std::size_t i) const {
      if (i == 700) throw std::runtime_error("here");
    }
  };
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < 3; ++w) workers.push_back(std::make_unique<Worker>());
  EXPECT_THROW(share_out(workers, 1000, 8, nullptr, [](std::size_t) {}), std::runtime_error);
}

}  // namespace search_test
}  // namespace orrery::sim
