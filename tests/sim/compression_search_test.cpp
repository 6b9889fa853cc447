/// Compression in the search: never proposed by itself, and in each way that the job names.
#include <gtest/gtest.h>

#include <set>

#include "sim/search/space.h"
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

}  // namespace
}  // namespace orrery::sim
