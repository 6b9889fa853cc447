// State spaces in a plan: what may divide them, which adapters such models have, and stages of unlike blocks.
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace state_space_test {

models::Model hybrid_sample() {
  models::Model m = samples::tiny_gpt();
  m.head_dim = 8;
  m.normalisation = models::Normalisation::rms_norm;
  m.positions = models::Positions::none;
  m.bias = m.tied_embeddings = false;
  m.ssm = {.heads = 8, .width = 8, .groups = 4, .state = 16, .chunk = 8};
  m.pattern = {{models::Mixer::mamba, models::Feed::none}, {models::Mixer::none, models::Feed::mlp}};
  return m;
}

std::string refusal(const PlanSpec& spec, const models::Model& model) {
  const auto made = samples::try_make(spec, model);
  return made ? "" : base::render(made.error(), false);
}

TEST(StateSpacePlans, DivideHeadsWithTheirGroupsAndTheNormsRuns) {
  PlanSpec spec;
  spec.mesh.tensor = 4;
  models::Model m = hybrid_sample();
  EXPECT_EQ(refusal(spec, m), "");
  m.ssm.norm_groups = 2;
  EXPECT_NE(refusal(spec, m).find("error[P170]: tensor 4 does not divide the state spaces' 8 heads in 4 groups, normed "
                                  "in 2 runs"),
            std::string::npos)
      << refusal(spec, m);
  m.ssm.norm_groups = 0, m.ssm.groups = 2;
  EXPECT_NE(refusal(spec, m).find("error[P170]"), std::string::npos);
  spec.mesh.tensor = 2;
  EXPECT_EQ(refusal(spec, m), "");
}

TEST(StateSpacePlans, LeaveASequenceWhole) {
  PlanSpec spec;
  spec.mesh.context = 2;
  EXPECT_NE(refusal(spec, hybrid_sample()).find("error[P171]"), std::string::npos);
}

// The norm of a gated delta network takes each head by itself, so that heads and groups alone decide.
TEST(StateSpacePlans, DivideGatedDeltaNetworksAlike) {
  PlanSpec spec;
  spec.mesh.tensor = 4;
  models::Model m = hybrid_sample();
  m.attention_gate = true;
  m.pattern = {{models::Mixer::delta, models::Feed::none}, {models::Mixer::attention, models::Feed::mlp}};
  EXPECT_EQ(refusal(spec, m), "");
  m.ssm.groups = 2;
  EXPECT_NE(
      refusal(spec, m).find("error[P170]: tensor 4 does not divide the gated delta networks' 8 heads in 2 groups"),
      std::string::npos)
      << refusal(spec, m);
  spec.mesh = {};
  spec.mesh.context = 2;
  EXPECT_NE(refusal(spec, m).find("error[P171]"), std::string::npos);
}

TEST(StateSpacePlans, HaveAdaptersWhereThereIsAttentionOrAnMlp) {
  models::Model m = hybrid_sample();
  m.lora = {.rank = 2, .alpha = 2, .qkv = true, .projection = true, .up = false, .down = false};
  EXPECT_NE(refusal({}, m).find("error[P165]"), std::string::npos) << "no block attends";
  m.lora.up = true;
  EXPECT_EQ(refusal({}, m), "");
  m.pattern = {{models::Mixer::mamba, models::Feed::none}};
  EXPECT_NE(refusal({}, m).find("error[P165]"), std::string::npos);
}

// Blocks of one kind have buffers of one size; a stage has what its own blocks need.
TEST(StateSpacePlans, GiveEachStageItsBlocksParameters) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  models::Model m = hybrid_sample();
  const auto of_blocks = [&](const models::Model& model) {
    const auto made = samples::try_make(spec, model);
    EXPECT_TRUE(made) << base::render(made.error(), false);
    std::vector<std::int64_t> all;
    for (const RankClass& c : lower(*made).classes) {
      std::int64_t sum = 0;
      for (const Bucket& bucket : c.buckets)
        for (const ParameterRange& range : bucket.ranges)
          if (range.name.starts_with("h.")) sum += range.elements;
      all.push_back(sum);
    }
    return all;
  };
  const std::vector<std::int64_t> alternate = of_blocks(m);
  EXPECT_EQ(alternate.front(), alternate.back());
  std::vector<models::BlockParts> blocks;
  for (std::int64_t i = 0; i < m.layers; ++i) blocks.push_back(m.pattern[i < m.layers / 2 ? 0 : 1]);
  m.pattern = blocks;
  const std::vector<std::int64_t> apart = of_blocks(m);
  // An MLP of 32 columns has 32 + 2 x 32 x 128 weights.
  EXPECT_EQ(apart.back(), m.layers / 2 * (32 + 2 * 32 * m.ffn_hidden));
  EXPECT_NE(apart.front(), apart.back());
}

}  // namespace state_space_test
}  // namespace orrery::plan
