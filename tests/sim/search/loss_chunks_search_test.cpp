/// The loss in chunks in the search: proposed where a plan fits by it, and there alone; predicted as it is replayed.
#include <gtest/gtest.h>

#include <cmath>

#include "cost/estimate/estimate.h"
#include "sim/search/search.h"
#include "sim/search/space.h"
#include "sim/simulate.h"
#include "tests/sim/one_gpu.h"

namespace orrery::sim {
namespace loss_chunks_search_test {

using testing::search_gpt2;

plan::Job gpt2_job() {
  plan::Job job = testing::gpt2_job(32);
  job.bounds.recomputation.what = {plan::Recompute::none};
  return job;
}

TEST(LossChunksInTheSearch, AreProposedWhereNothingElseLetsAPlanFit) {
  const plan::Job job = gpt2_job();
  const double whole = search_gpt2(job, 0).plans.at(0).memory_peak_bytes;
  EXPECT_EQ(search_gpt2(job, 0).plans.at(0).spec.numerics.loss_chunks, 1);
  const cost::SearchResult tight = search_gpt2(job, 0.97 * whole);
  ASSERT_EQ(tight.plans.size(), 1u);
  EXPECT_EQ(tight.plans[0].spec.numerics.loss_chunks, 2) << "as few as fit";
  EXPECT_LE(tight.plans[0].memory_peak_bytes, 0.97 * whole);
  EXPECT_EQ(tight.feasible, 1);
  EXPECT_TRUE(search_gpt2(job, 0.1 * whole).plans.empty()) << "more than the logits is missing";

  plan::Job as_it_is = job;
  as_it_is.bounds.numerics.loss_chunks = {1};
  const cost::SearchResult none = search_gpt2(as_it_is, 0.97 * whole);
  EXPECT_TRUE(none.plans.empty());
  bool says = false;
  for (const std::string& line : none.nearest) says = says || line.find("plan.loss_chunks free") != std::string::npos;
  EXPECT_TRUE(says);
}

TEST(LossChunksInTheSearch, AreThoseThatTheJobNames) {
  plan::Job job = gpt2_job();
  job.bounds.numerics.loss_chunks = {1, 4, 3};
  const cost::SearchResult result = search_gpt2(job, 0);
  EXPECT_EQ(result.candidates, 3);
  EXPECT_EQ(result.feasible, 2);
  EXPECT_EQ(result.rejected.count("P85 loss_chunks does not divide the head's rows"), 1u);
}

TEST(LossChunksInTheSearch, AreEstimatedAsTheyAreReplayed) {
  const auto cluster = testing::cluster("dgx-a100");
  const auto model = testing::model("gpt2-124m");
  const cost::Pricing pricing(cluster, testing::stack("orrery-cuda"));
  cost::Estimator estimator(model, pricing);
  struct Mesh {
    int data, tensor, pipeline, zero;
    bool sequence;
    plan::Order order;
  };
  using plan::Order;
  for (const Mesh& mesh : {Mesh{8, 1, 1, 0, false, Order::one_f_one_b}, Mesh{8, 1, 1, 3, false, Order::one_f_one_b},
                           Mesh{2, 4, 1, 1, true, Order::one_f_one_b}, Mesh{2, 2, 2, 0, false, Order::one_f_one_b},
                           Mesh{2, 1, 4, 0, false, Order::gpipe}}) {
    plan::PlanSpec spec;
    spec.mesh.data = mesh.data, spec.mesh.tensor = mesh.tensor, spec.mesh.pipeline = mesh.pipeline;
    spec.states.zero_stage = mesh.zero, spec.mesh.sequence_parallel = mesh.sequence, spec.stages.order = mesh.order;
    spec.shape.batch = 64, spec.shape.sequence = 1024, spec.shape.micro_batch = 4,
    spec.numerics.precision = models::DType::bf16;
    double memory = 0;
    for (const std::int64_t chunks : {1, 4, 8}) {
      spec.numerics.loss_chunks = chunks;
      const auto made = plan::make_plan(model, cluster, spec);
      ASSERT_TRUE(made) << base::render(made.error(), false);
      SCOPED_TRACE(plan::describe(made->spec()));
      const cost::Estimate estimate = estimator.estimate(*made);
      const cost::Prediction replayed = simulate(*made, pricing, {.spans = false}).prediction;
      EXPECT_NEAR(estimate.step_time / replayed.step_time_s, 1, 0.05);
      EXPECT_NEAR(estimate.memory_peak / replayed.memory_peak_bytes, 1, 0.02);
      if (chunks > 1) {
        EXPECT_LE(replayed.memory_peak_bytes, memory);
      }
      memory = replayed.memory_peak_bytes;
    }
  }
}

}  // namespace loss_chunks_search_test
}  // namespace orrery::sim
