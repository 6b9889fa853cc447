/// Compression in the search: never proposed by itself, taken where the job allows it and it pays, its gain shown by
/// the plan without it in the same table.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/search/search.h"
#include "sim/search/space.h"
#include "tests/sim/search_support.h"

namespace orrery::sim {
namespace {

using plan::ActivationEncoding;
using plan::GradientCompression;

plan::Job job_of() {
  plan::Job job;
  job.batch = 512;
  job.sequence = 1024;
  job.precision = models::DType::bf16;
  job.bounds.data = {64};
  job.bounds.tensor = job.bounds.pipeline = {1};
  job.bounds.zero_stage = {0};
  return job;
}

cost::SearchResult search_on(const plan::Job& job, double gigabytes_per_second) {
  auto cluster = std::make_shared<clusters::Cluster>(*testing::cluster("dgx-a100", 64));
  cluster->inter.bandwidth = base::BytesPerSecond{gigabytes_per_second * 1e9};
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  return search(testing::model("gpt2-1558m"), cluster, job, pricing, {.top = 20});
}

TEST(CompressionInTheSearch, IsNeverProposedWhereTheJobDoesNotNameIt) {
  const auto cluster = testing::cluster("localhost-4");
  plan::Job job;
  job.batch = 16, job.sequence = 64;
  for (const plan::PlanSpec& spec : space_of(*cluster, *testing::model("tiny-gpt"), job, true))
    ASSERT_EQ(spec.compression, plan::Compression{});
  const std::size_t without = space_of(*cluster, *testing::model("tiny-gpt"), job, true).size();
  job.bounds.compress_gradients = {GradientCompression::none, GradientCompression::bf16};
  job.bounds.compress_activations = {ActivationEncoding::none, ActivationEncoding::fp8};
  job.bounds.compress_rank = 8;
  const std::vector<plan::PlanSpec> space = space_of(*cluster, *testing::model("tiny-gpt"), job, true);
  EXPECT_EQ(space.size(), 4 * without);
  std::set<std::pair<GradientCompression, ActivationEncoding>> seen;
  for (const plan::PlanSpec& spec : space) {
    seen.emplace(spec.compression.gradients, spec.compression.activations);
    EXPECT_EQ(spec.compression.rank, 8);
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(CompressionInTheSearch, IsTakenOnASlowNetworkAndItsGainStandsBesideIt) {
  plan::Job job = job_of();
  job.bounds.compress_gradients = {GradientCompression::none, GradientCompression::bf16, GradientCompression::powersgd};
  const cost::SearchResult slow = search_on(job, 1);
  ASSERT_GE(slow.plans.size(), 3u);
  EXPECT_EQ(slow.plans.front().spec.compression.gradients, GradientCompression::powersgd);
  std::map<GradientCompression, double> best;
  for (const cost::Prediction& p : slow.plans) best.try_emplace(p.spec.compression.gradients, p.step_time_s);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_LT(best[GradientCompression::powersgd], best[GradientCompression::bf16]);
  EXPECT_LT(best[GradientCompression::bf16], best[GradientCompression::none]);
}

TEST(CompressionInTheSearch, FitsMoreWhereActivationsWaitInFewerBits) {
  plan::Job job = job_of();
  job.bounds.micro_batch = {2};
  job.bounds.recompute = {plan::Recompute::none};
  const double full = search_on(job, 25).plans.front().memory_peak_bytes;
  job.bounds.compress_activations = {ActivationEncoding::fp8};
  const double narrow = search_on(job, 25).plans.front().memory_peak_bytes;
  EXPECT_LT(narrow, 0.8 * full);
}

}  // namespace
}  // namespace orrery::sim
