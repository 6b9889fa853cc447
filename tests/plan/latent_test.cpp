// Latent attention in a plan: what a tensor group sums once a step; and models that are counted and not planned.
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace latent_test {

models::Model latent_sample() {
  models::Model m = samples::tiny_gpt();
  m.head_dim = 10;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = m.tied_embeddings = false;
  m.latent = {.q_rank = 20, .kv_rank = 12, .nope = 6, .rope = 4, .value = 8};
  return m;
}

// Narrow products and their norms, of every layer: 20 and 12 + 4 rows of 32 columns, 20 and 12 weights.
TEST(LatentPlans, SumTheNarrowProductsGradientsOverTheTensorGroup) {
  PlanSpec spec;
  spec.mesh.tensor = 2;
  const auto made = samples::try_make(spec, latent_sample());
  ASSERT_TRUE(made) << base::render(made.error(), false);
  const Schedule schedule = lower(*made);
  std::int64_t partial = 0, seen = 0;
  for (const Bucket& bucket : schedule.class_of(0).buckets)
    for (const ParameterRange& range : bucket.ranges)
      if (range.tensor.partial_gradient) partial += range.tensor.elements(), ++seen;
  EXPECT_EQ(seen, 4 * 4);
  EXPECT_EQ(partial, 4 * (20 * 32 + 16 * 32 + 20 + 12));
}

// They were once counted alone.
TEST(PlannedModels, MayHaveSinksAndBiasesOfExperts) {
  models::Model m = latent_sample();
  m.latent = {}, m.head_dim = 8;
  m.attention_sinks = true;
  EXPECT_TRUE(samples::try_make({}, m));
  m.experts = {.count = 4, .chosen = 2, .hidden = 16, .router_bias = true, .expert_bias = true};
  EXPECT_TRUE(samples::try_make({}, m));
}

}  // namespace latent_test
}  // namespace orrery::plan
