// Plans of state spaces, gated delta networks, experts on narrower copies and attention to chosen tokens, replayed and
// in closed form: the two agree, and a sequence twice as long takes at most twice as long where no block attends.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cost/estimate/estimate.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace state_space_test {

models::Model hybrid_model() {
  models::Model m = samples::tiny_gpt(8, 256, 1024);
  m.max_sequence = 512;
  m.normalisation = models::Normalisation::rms_norm;
  m.positions = models::Positions::none;
  m.bias = m.tied_embeddings = false;
  m.ssm = {.heads = 16, .width = 32, .groups = 4, .state = 64, .chunk = 64};
  const models::BlockParts mamba = {models::Mixer::mamba, models::Feed::none}, mlp = {models::Mixer::none};
  m.pattern = {mamba, mlp, mamba, {models::Mixer::attention, models::Feed::none}, mlp, mamba, mlp, mlp};
  return m;
}

// Gated delta networks and gated attention, before experts one of which every token takes.
models::Model delta_model() {
  models::Model m = hybrid_model();
  m.activation = models::Activation::swiglu;
  m.ssm.conv_bias = false;
  m.attention_gate = m.qk_norm = true;
  m.experts = {.count = 8, .chosen = 2, .hidden = 128, .shared = 128, .shared_gate = true, .normalised = true};
  const models::BlockParts delta = {models::Mixer::delta, models::Feed::experts};
  m.pattern = {delta, delta, delta, {models::Mixer::attention, models::Feed::experts}};
  return m;
}

// Nemotron 3 Super's: state spaces, and experts that work on narrower copies of the tokens.
models::Model narrow_model() {
  models::Model m = hybrid_model();
  m.activation = models::Activation::squared_relu;
  m.experts = {.count = 8, .chosen = 2, .hidden = 128, .narrow = 64, .shared = 256, .normalised = true};
  const models::BlockParts mamba = {models::Mixer::mamba, models::Feed::none};
  const models::BlockParts experts = {models::Mixer::none, models::Feed::experts};
  m.pattern = {mamba, experts, {models::Mixer::attention, models::Feed::none}, experts};
  return m;
}

// DeepSeek-V3.2's: latent attention to the tokens that an indexer chooses, before experts.
models::Model indexed_model() {
  models::Model m = hybrid_model();
  m.ssm = {};
  m.pattern.clear();
  m.positions = models::Positions::rope;
  m.activation = models::Activation::swiglu;
  m.latent = {.q_rank = 96, .kv_rank = 64, .nope = 32, .rope = 16, .value = 32};
  m.head_dim = 48;
  m.kv_heads = m.heads;
  m.indexer = {.heads = 4, .width = 32, .chosen = 64};
  m.experts = {.count = 8, .chosen = 2, .hidden = 128, .shared = 128, .normalised = true};
  return m;
}

cost::Pricing pricing(const plan::Plan& plan) {
  cost::Stack stack;
  stack.name = "bare";
  return cost::Pricing(std::make_shared<clusters::Cluster>(plan.cluster()), std::move(stack));
}

void expect_as_replayed(const char* of, const models::Model& model) {
  using Set = void (*)(plan::PlanSpec&);
  const std::pair<const char*, Set> splits[] = {
      {"serial", [](plan::PlanSpec&) {}},
      {"data", [](plan::PlanSpec& s) { s.mesh.data = 4; }},
      {"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
      {"tensor", [](plan::PlanSpec& s) { s.mesh.tensor = 4; }},
      {"rows", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
      {"pipeline", [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.stages.order = plan::Order::one_f_one_b; }},
      {"interleaved",
       [](plan::PlanSpec& s) {
         s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = plan::Order::one_f_one_b;
       }},
      {"recomputed", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
  };
  for (const auto& [name, set] : splits) {
    SCOPED_TRACE(of);
    plan::PlanSpec spec;
    spec.shape.batch = 16, spec.shape.sequence = 256;
    set(spec);
    const plan::Plan plan = samples::make(spec, model);
    const cost::Pricing prices = pricing(plan);
    const cost::Prediction replayed = simulate(plan, prices).prediction;
    cost::Estimator estimator(std::make_shared<models::Model>(model), prices);
    const cost::Estimate closed = estimator.estimate(plan);
    std::printf("[ closed   ] %-8s %-12s time %+.4f %%  memory %+.4f %%\n", of, name,
                100 * (closed.step_time / replayed.step_time_s - 1),
                100 * (closed.memory_peak / replayed.memory_peak_bytes - 1));
    EXPECT_NEAR(closed.step_time / replayed.step_time_s, 1, 0.01) << name;
    EXPECT_NEAR(closed.memory_peak / replayed.memory_peak_bytes, 1, 5e-3) << name;
  }
}

// Two blocks' parameters are there at a time, so that the fullest moment depends on which blocks are neighbours.
TEST(StateSpaceReplay, TakesTheMemoryOfNeighboursWhoseParametersAreThereTogether) {
  models::Model model = hybrid_model();
  const models::BlockParts mamba = model.pattern[0], mlp = model.pattern[1], attention = model.pattern[3];
  plan::PlanSpec spec;
  spec.shape.batch = 16, spec.shape.sequence = 32;
  spec.mesh.data = 4, spec.states.zero_stage = 3;
  std::vector<double> peaks;
  for (const std::vector<models::BlockParts>& pattern :
       {std::vector{mamba, mlp, mamba, mlp, mamba, mlp, mamba, attention},
        std::vector{mlp, mlp, mlp, mlp, mamba, mamba, mamba, attention}}) {
    model.pattern = pattern;
    const plan::Plan plan = samples::make(spec, model);
    const cost::Pricing prices = pricing(plan);
    cost::Estimator estimator(std::make_shared<models::Model>(model), prices);
    peaks.push_back(simulate(plan, prices).prediction.memory_peak_bytes);
    EXPECT_DOUBLE_EQ(estimator.memory_peak(plan), peaks.back());
  }
  EXPECT_NE(peaks[0], peaks[1]) << "their order does not matter here, so that this shows nothing";
}

TEST(StateSpaceReplay, TakesWhatTheClosedFormSays) {
  expect_as_replayed("mamba", hybrid_model());
}

TEST(GatedDeltaReplay, TakesWhatTheClosedFormSays) {
  expect_as_replayed("delta", delta_model());
}

TEST(NarrowCopiesReplay, TakesWhatTheClosedFormSays) {
  expect_as_replayed("narrow", narrow_model());
}

TEST(IndexerReplay, TakesWhatTheClosedFormSays) {
  expect_as_replayed("indexer", indexed_model());
}

// The indexer scores all tokens with few narrow heads, attention a number that does not grow.
TEST(IndexerReplay, TakesLessThanAttentionToAllTokensWhereSequencesAreLong) {
  models::Model model = indexed_model();
  model.max_sequence = 8192;
  const auto step = [&](bool chosen) {
    model.indexer.chosen = chosen ? 64 : 0;
    plan::PlanSpec spec;
    spec.shape.batch = 2, spec.shape.sequence = 8192;
    const plan::Plan plan = samples::make(spec, model);
    return simulate(plan, pricing(plan)).prediction.step_time_s;
  };
  EXPECT_LT(step(true), 0.8 * step(false));
}

TEST(StateSpaceReplay, GrowsNoFasterThanTheSequence) {
  models::Model model = hybrid_model();
  const auto step = [&](std::int64_t sequence) {
    plan::PlanSpec spec;
    spec.shape.batch = 8, spec.shape.sequence = sequence;
    const plan::Plan plan = samples::make(spec, model);
    return simulate(plan, pricing(plan)).prediction.breakdown.forward;
  };
  const double attends = step(512) / step(256);
  model.pattern = {{models::Mixer::mamba, models::Feed::mlp}};
  const double scans = step(512) / step(256);
  EXPECT_LE(scans, 2) << "weights are read once, and nothing grows with the square";
  EXPECT_GT(scans, 1.9);
  EXPECT_GT(attends, scans + 0.05);
}

}  // namespace state_space_test
}  // namespace orrery::sim
