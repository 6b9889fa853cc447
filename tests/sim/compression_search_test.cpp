/// Compression in the search: never proposed by itself, and in each way that the job names; where it gains and where
/// not.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/search/search.h"
#include "sim/search/space.h"
#include "sim/simulate.h"
#include "tests/sim/search_support.h"

namespace orrery::sim {
namespace {

using plan::ActivationEncoding;
using plan::GradientCompression;

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

/// Pure data parallelism of GPT-2 on so many devices of a cluster of the catalogue.
plan::Job job_of(int devices, models::DType precision) {
  plan::Job job;
  job.batch = devices * 4;
  job.sequence = 1024;
  job.precision = precision;
  job.bounds.data = {devices};
  job.bounds.tensor = job.bounds.pipeline = {1};
  job.bounds.zero_stage = {0};
  job.bounds.recompute = {plan::Recompute::full};
  job.bounds.micro_batch = {4};
  job.bounds.overlap_gradients = false;
  return job;
}

cost::SearchResult search_on(const std::string& name, int devices, const plan::Job& job, const char* model) {
  const auto cluster = testing::cluster(name, devices);
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  return search(testing::model(model), cluster, job, pricing, {.top = 20});
}

/// The best step time of each way of compression.
std::map<std::pair<GradientCompression, int>, double> times(const cost::SearchResult& found) {
  std::map<std::pair<GradientCompression, int>, double> best;
  for (const cost::Prediction& p : found.plans)
    best.try_emplace({p.spec.compression.gradients, p.spec.compression.group}, p.step_time_s);
  return best;
}

// Eight devices behind one port of 100 Gb/s (p3dn), or four (p4d): an exchange of all with all puts eight messages on
// the wire where rings put one twice as large, and loses; added up by node first, the wire carries half.
TEST(CompressionInTheSearch, GainsByNodeAndLosesAllAtOnceWhereDevicesShareANodesPorts) {
  for (const auto& [name, model, precision, how] :
       {std::tuple{"aws-p3dn", "gpt2-774m", models::DType::fp32, GradientCompression::fp16},
        std::tuple{"aws-p4d", "gpt2-1558m", models::DType::bf16, GradientCompression::bf16}}) {
    SCOPED_TRACE(name);
    plan::Job job = job_of(64, precision);
    job.bounds.compress_gradients = {GradientCompression::none, how};
    auto best = times(search_on(name, 64, job, model));
    const double plain = best.at({GradientCompression::none, 0}), by_node = best.at({how, 8});
    std::printf("[ gain     ] %s: plain %.3f s, all at once %.3f s, by node %.3f s\n", name, plain, best.at({how, 0}),
                by_node);
    EXPECT_LT(by_node, plain);
    EXPECT_GT(best.at({how, 0}), plain);
  }
}

}  // namespace
}  // namespace orrery::sim
