/// Partial recomputation in the search: as few blocks as memory asks for, where the job leaves it open.
#include "sim/search/partial_recompute.h"

#include <gtest/gtest.h>

#include "sim/search/search.h"
#include "tests/sim/one_gpu.h"

namespace orrery::sim {
namespace partial_recompute_test {

using testing::one_a100;
using testing::search_gpt2;

plan::Job partly_recomputed_job() {
  plan::Job job = testing::gpt2_job(16);
  job.bounds.numerics.loss_chunks = {1};
  return job;
}

cost::Prediction best_of(plan::Job job, std::vector<plan::Recompute> recompute, double memory) {
  job.bounds.recomputation.what = std::move(recompute);
  return search_gpt2(job, memory).plans.at(0);
}

TEST(PartialRecomputation, IsOfAsFewBlocksAsFit) {
  const plan::Job job = partly_recomputed_job();
  const cost::Prediction none = best_of(job, {plan::Recompute::none}, 1e12);
  const cost::Prediction full = best_of(job, {plan::Recompute::full}, 1e12);
  const double between = (none.memory_peak_bytes + full.memory_peak_bytes) / 2;
  const cost::Prediction best = search_gpt2(job, between).plans.at(0);
  EXPECT_EQ(best.spec.recomputation.what, plan::Recompute::full);
  EXPECT_GT(best.spec.recomputation.layers, 0);
  EXPECT_LT(best.spec.recomputation.layers, 12);
  EXPECT_LE(best.memory_peak_bytes, between);
  EXPECT_LT(best.step_time_s, full.step_time_s);
  EXPECT_GT(best.step_time_s, none.step_time_s);
  EXPECT_GT(none.step_time_s, kLeastOfFull * full.step_time_s) << "what the search leaves out by";

  plan::PlanSpec fewer = best.spec;
  --*fewer.recomputation.layers;
  const auto cluster = one_a100(between);
  const auto model = testing::model("gpt2-124m");
  const auto plan = plan::make_plan(model, cluster, fewer);
  ASSERT_TRUE(plan);
  const cost::Pricing pricing(cluster, testing::stack("orrery-cuda"));
  cost::Estimator estimator(model, pricing);
  EXPECT_GT(estimator.memory_peak(*plan), between) << "one block fewer does not fit";
}

TEST(PartialRecomputation, IsNotProposedWherePlansFitWithoutOrTheJobSaysOtherwise) {
  plan::Job job = partly_recomputed_job();
  const cost::Prediction none = best_of(job, {plan::Recompute::none}, 1e12);
  const cost::Prediction full = best_of(job, {plan::Recompute::full}, 1e12);
  EXPECT_EQ(search_gpt2(job, 1e12).plans.at(0).spec.recomputation.what, plan::Recompute::none);
  const double between = (none.memory_peak_bytes + full.memory_peak_bytes) / 2;
  EXPECT_EQ(best_of(job, {plan::Recompute::full}, between).spec.recomputation.layers, std::nullopt);
  plan::Job as_told = job;
  as_told.bounds.recomputation.layers = 11;
  EXPECT_EQ(search_gpt2(as_told, between).plans.at(0).spec.recomputation.layers, 11);
  job.objective = plan::Objective::memory;
  EXPECT_EQ(search_gpt2(job, between).plans.at(0).spec.recomputation.layers, std::nullopt)
      << "least memory is with all";
}

}  // namespace partial_recompute_test
}  // namespace orrery::sim
