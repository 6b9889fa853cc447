// Experts whose replicas are other ranks than those of the other parameters, with everything that looks at replicas:
// optimizers that need whole tensors or matrices, sub-groups of ZeRO, states elsewhere, compressed gradients, scaled
// losses. All come to what one rank does.
#include <gtest/gtest.h>

#include "models/dtype.h"
#include "tests/exec/serial.h"
#include "tests/exec/small_mixtures.h"

namespace orrery::exec {
namespace experts_apart_test {

using models::DType;
using plan::OptimizerKind;
using plan::PlanSpec;
using testing::Mixture;
using testing::Outcome;
using testing::Trial;

/// In fp32, but for what two runs may differ by before a rounding decides.
struct Bounds {
  double loss = 1e-5, first = 1e-5, last = 1e-4, weights = 1e-4, norm = 1e-4;
};

void expect_equal(const char* name, const Outcome& ours, const Outcome& alone, const Bounds& bounds = {}) {
  ASSERT_EQ(ours.steps.size(), alone.steps.size());
  const double loss = testing::loss_distance(ours, alone);
  const double first = testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0));
  const double last = testing::relative_distance(ours.gradients.at(19), alone.gradients.at(19));
  const double weights = testing::relative_distance(ours.weights, alone.weights);
  std::printf("[ errors   ] %-44s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e  weights %.1e\n", name, loss,
              first, last, weights);
  EXPECT_LE(loss, bounds.loss);
  EXPECT_LE(first, bounds.first);
  EXPECT_LE(last, bounds.last);
  EXPECT_LE(weights, bounds.weights);
  for (std::size_t i = 0; i < alone.steps.size(); ++i)
    EXPECT_NEAR(ours.steps[i].gradient_norm, alone.steps[i].gradient_norm, bounds.norm * alone.steps[i].gradient_norm)
        << "step " << i + 1 << ": a shard counts twice or not at all";
  for (std::size_t rank = 0; rank < ours.memory.size(); ++rank)
    EXPECT_EQ(ours.memory[rank].peak_live, ours.placements[rank].peak_live_bytes) << "rank " << rank;
}

const Mixture& mixture(const std::string& name) {
  for (const Mixture& one : testing::kMixtures)
    if (one.name == name) return one;
  throw std::runtime_error(name);
}

struct Split {
  const char* name;
  void (*set)(PlanSpec&);
};

void expert_2_of_4(PlanSpec& s, int zero = 0) {
  s.mesh.data = 4, s.mesh.expert = 2, s.states.zero_stage = zero;
}
void whole_experts(PlanSpec& s, int zero = 0) {
  s.mesh.tensor = s.mesh.data = s.mesh.expert = 2, s.mesh.sequence_parallel = true, s.mesh.expert_tensor = 1;
  s.states.zero_stage = zero;
}
void split_experts(PlanSpec& s, int zero = 0) {
  s.mesh.tensor = s.mesh.expert = 2, s.mesh.data = 4, s.shape.micro_batch = 1, s.states.zero_stage = zero;
}
void split_2_of_tensor_4(PlanSpec& s, int zero = 0) {
  s.mesh.tensor = 4, s.mesh.data = s.mesh.expert = s.mesh.expert_tensor = 2, s.mesh.sequence_parallel = true;
  s.states.zero_stage = zero;
}
void split_2_over_data_4(PlanSpec& s, int zero = 0) {
  s.mesh.data = 4, s.mesh.expert = s.mesh.expert_tensor = 2, s.states.zero_stage = zero;
}

// -- optimizers that look at whole tensors ----------------------------------------------------------------------------

/// With rates at which no choice of these runs is so near a tie that rounding decides it.
plan::Optimizer steady(OptimizerKind kind) {
  plan::Optimizer o = testing::optimizer_of(kind);
  if (kind == OptimizerKind::muon) o.learning_rate = 1e-2;
  return o;
}

Trial trial_with(OptimizerKind kind, const char* name) {
  Trial trial = testing::mixture_trial(mixture(name));
  trial.training.optimizer = steady(kind);
  return trial;
}

const Outcome& serial_with(OptimizerKind kind, const char* name) {
  static std::map<std::pair<OptimizerKind, std::string>, Outcome> known;
  const auto key = std::make_pair(kind, std::string(name));
  if (!known.contains(key)) known.emplace(key, testing::train(trial_with(kind, name)));
  return known.at(key);
}

class WholeTensors : public ::testing::TestWithParam<std::tuple<OptimizerKind, const char*, Split>> {};

TEST_P(WholeTensors, OfExpertsAreSummedAndGatheredOverTheExpertsOwnReplicas) {
  const auto& [kind, name, split] = GetParam();
  Trial trial = trial_with(kind, name);
  split.set(trial.spec);
  // What is divided by a root of small squares keeps less of a rounding.
  const Bounds bounds = {.loss = 1e-5, .last = 1e-3, .weights = 1e-3, .norm = 1e-3};
  const std::string text = std::string(plan::name_of(kind)) + " " + name + " " + split.name;
  expect_equal(text.c_str(), testing::train(trial), serial_with(kind, name), bounds);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, WholeTensors,
    ::testing::Combine(
        ::testing::Values(OptimizerKind::lamb, OptimizerKind::adafactor, OptimizerKind::muon),
        ::testing::Values("top_2", "gpt_oss"),
        ::testing::Values(
            Split{"expert_2", [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 2; }},
            Split{"expert_2_of_4_zero_1", [](PlanSpec& s) { expert_2_of_4(s, 1); }},
            Split{"expert_2_of_4_zero_2", [](PlanSpec& s) { expert_2_of_4(s, 2); }},
            Split{"expert_2_of_4_zero_3", [](PlanSpec& s) { expert_2_of_4(s, 3); }},
            Split{"expert_4_zero_1", [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 1; }},
            Split{"split_over_tensor_2_zero_1", [](PlanSpec& s) { split_experts(s, 1); }},
            Split{"whole_experts", [](PlanSpec& s) { whole_experts(s); }},
            Split{"whole_experts_zero_2", [](PlanSpec& s) { whole_experts(s, 2); }},
            Split{"split_2_of_tensor_4", [](PlanSpec& s) { split_2_of_tensor_4(s); }},
            Split{"split_2_of_tensor_4_zero_2", [](PlanSpec& s) { split_2_of_tensor_4(s, 2); }},
            Split{"split_2_over_data_4_zero_1", [](PlanSpec& s) { split_2_over_data_4(s, 1); }},
            Split{"zero_1_in_sub_groups", [](PlanSpec& s) { expert_2_of_4(s, 1), s.states.zero_group = 2; }},
            Split{"pipeline_2_zero_1", [](PlanSpec& s) { expert_2_of_4(s, 1), s.mesh.pipeline = 2; }})),
    [](const auto& one) {
      return std::string(plan::name_of(std::get<0>(one.param))) + "_" + std::get<1>(one.param) + "_" +
             std::get<2>(one.param).name;
    });

// -- ZeRO's sub-groups, and states elsewhere --------------------------------------------------------------------------

class ApartStates : public ::testing::TestWithParam<std::tuple<const char*, Split>> {};

TEST_P(ApartStates, AreDividedAndMovedAsThoseOfOtherParameters) {
  const auto& [name, split] = GetParam();
  Trial trial = testing::mixture_trial(mixture(name));
  split.set(trial.spec);
  expect_equal((std::string(name) + " " + split.name).c_str(), testing::train(trial),
               testing::serial_mixture(mixture(name)));
}

void sub_groups(PlanSpec& s, int zero, int group, int expert, int data = 4) {
  s.mesh.data = data, s.mesh.expert = expert, s.states.zero_stage = zero, s.states.zero_group = group;
  if (data == 8) s.shape.micro_batch = 1;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ApartStates,
    ::testing::Combine(
        ::testing::Values("top_2", "shared_with_a_gate"),
        ::testing::Values(
            Split{"zero_1_by_2_expert_2", [](PlanSpec& s) { sub_groups(s, 1, 2, 2); }},
            Split{"zero_2_by_2_expert_2", [](PlanSpec& s) { sub_groups(s, 2, 2, 2); }},
            Split{"zero_3_by_2_expert_2", [](PlanSpec& s) { sub_groups(s, 3, 2, 2); }},
            Split{"zero_2_by_4_of_8_expert_2", [](PlanSpec& s) { sub_groups(s, 2, 4, 2, 8); }},
            Split{"zero_1_by_2_expert_4", [](PlanSpec& s) { sub_groups(s, 1, 2, 4); }},
            Split{"zero_3_by_2_of_8_expert_4", [](PlanSpec& s) { sub_groups(s, 3, 2, 4, 8); }},
            Split{"zero_2_by_2_expert_2_overlapped",
                  [](PlanSpec& s) { sub_groups(s, 2, 2, 2), s.states.overlap_gradients = true; }},
            Split{"zero_3_by_2_expert_4_overlapped",
                  [](PlanSpec& s) { sub_groups(s, 3, 2, 4), s.states.overlap_gradients = true; }},
            Split{"zero_1_by_2_whole_experts",
                  [](PlanSpec& s) {
                    whole_experts(s, 1), s.mesh.data = 4, s.states.zero_group = 2, s.shape.micro_batch = 1;
                  }},
            Split{"zero_1_by_2_split_2_over_data_4",
                  [](PlanSpec& s) { split_2_over_data_4(s, 1), s.states.zero_group = 2; }},
            Split{"zero_2_split_2_of_tensor_4_on_the_host",
                  [](PlanSpec& s) { split_2_of_tensor_4(s, 2), s.offload.optimizer = plan::Space::host; }},
            Split{"optimizer_on_the_host",
                  [](PlanSpec& s) { expert_2_of_4(s), s.offload.optimizer = plan::Space::host; }},
            Split{"optimizer_on_the_host_zero_1",
                  [](PlanSpec& s) { expert_2_of_4(s, 1), s.offload.optimizer = plan::Space::host; }},
            Split{"optimizer_on_the_host_zero_2_expert_4",
                  [](PlanSpec& s) {
                    s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 2, s.offload.optimizer = plan::Space::host;
                  }},
            Split{"all_on_the_host_zero_3",
                  [](PlanSpec& s) {
                    expert_2_of_4(s, 3), s.offload.optimizer = s.offload.parameters = plan::Space::host;
                  }},
            Split{"all_in_files_zero_3_expert_4",
                  [](PlanSpec& s) {
                    s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 3;
                    s.offload.optimizer = s.offload.parameters = plan::Space::nvme;
                  }},
            Split{"parameters_on_the_host_pipeline_2",
                  [](PlanSpec& s) {
                    s.mesh.data = s.mesh.expert = s.mesh.pipeline = 2, s.offload.parameters = plan::Space::host;
                  }},
            Split{"whole_experts_on_the_host_zero_1",
                  [](PlanSpec& s) { whole_experts(s, 1), s.offload.optimizer = plan::Space::host; }})),
    [](const auto& one) { return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name; });

// -- compressed gradients ---------------------------------------------------------------------------------------------

struct CompressedSplit {
  const char* name;
  plan::GradientCompression how;
  void (*set)(PlanSpec&);
};
class ApartCompressed : public ::testing::TestWithParam<CompressedSplit> {};

/// Steps before the first in which an expert has other tokens. Two right runs part there: rounding decides between
/// experts whose scores of a token are nearly equal, and all later numbers follow.
std::size_t steps_of_equal_choices(const Outcome& a, const Outcome& b) {
  std::size_t step = 0;
  while (step < a.steps.size() && a.steps[step].experts.loads == b.steps[step].experts.loads) ++step;
  return step;
}

// Replicas of experts each bring the gradients of all tokens that their part of the ranks has sent them.
TEST_P(ApartCompressed, IsWhatTheSerialProgramDoes) {
  const auto& [name, how, set] = GetParam();
  Trial trial = testing::mixture_trial(mixture("shared_with_a_gate"));
  trial.training.clip_norm.reset();  // the serial program puts its gradients in when the norm has been taken
  trial.spec.compression.gradients = how;
  trial.spec.compression.rank = 2, trial.spec.compression.minimum_rate = 1.2;
  set(trial.spec);
  const Outcome ours = testing::train(trial), alone = testing::train_serially(trial);
  const std::size_t equal = steps_of_equal_choices(ours, alone);
  ASSERT_GE(equal, 10U) << "choices that differ so early are no rounding";
  Outcome before = ours, alone_before = alone;
  before.steps.resize(equal), alone_before.steps.resize(equal);
  const double loss = testing::loss_distance(before, alone_before);
  const double first = testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0));
  const double weights = testing::relative_distance(ours.weights, alone.weights);
  std::printf("[ errors   ] %-44s loss %.1e in %zu steps  gradient at step 1 %.1e  weights %.1e\n", name, loss, equal,
              first, weights);
  // A last bit of a value may round another value the other way. Where tensor ranks have parts of a sum, every value
  // may be off by its last bit, and bf16 then rounds one in thousands the other way: by step 11 that turns a
  // choice.
  const bool halves = how != plan::GradientCompression::powersgd;
  EXPECT_LE(loss, halves ? 3e-5 : 1e-5);
  EXPECT_LE(first, halves ? 1e-3 : 1e-5);
  EXPECT_LE(weights, halves ? 1e-3 : 1e-4);
  Trial plain = trial;
  plain.spec.compression = {};
  if (equal == ours.steps.size()) {
    EXPECT_GT(testing::relative_distance(testing::train(plain).weights, ours.weights), 3 * weights)
        << "nothing was compressed";
  } else {
    plain.steps = 1, plain.gradients_at = {0};
    EXPECT_GT(testing::relative_distance(testing::train(plain).gradients.at(0), ours.gradients.at(0)), 3 * first)
        << "nothing was compressed";
  }
  for (std::size_t rank = 0; rank < ours.memory.size(); ++rank)
    EXPECT_EQ(ours.memory[rank].peak_live, ours.placements[rank].peak_live_bytes) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ApartCompressed,
    ::testing::Values(
        CompressedSplit{"bf16_expert_2_of_4", plan::GradientCompression::bf16, [](PlanSpec& s) { expert_2_of_4(s); }},
        CompressedSplit{"bf16_expert_4_of_4", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 4; }},
        CompressedSplit{"fp16_expert_2_of_4_zero_1", plan::GradientCompression::fp16,
                        [](PlanSpec& s) { expert_2_of_4(s, 1); }},
        CompressedSplit{"bf16_expert_2_of_4_zero_2", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { expert_2_of_4(s, 2); }},
        CompressedSplit{"bf16_expert_4_zero_3", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 3; }},
        CompressedSplit{"bf16_expert_2_of_4_overlapped", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { expert_2_of_4(s), s.states.overlap_gradients = true; }},
        CompressedSplit{"bf16_by_node_of_2_expert_2", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { expert_2_of_4(s), s.compression.group = 2; }},
        CompressedSplit{"bf16_by_node_of_4_of_8_expert_2_zero_1", plan::GradientCompression::bf16,
                        [](PlanSpec& s) {
                          expert_2_of_4(s, 1), s.mesh.data = 8, s.compression.group = 4, s.shape.micro_batch = 1;
                        }},
        CompressedSplit{"powersgd_expert_2_of_4", plan::GradientCompression::powersgd,
                        [](PlanSpec& s) { expert_2_of_4(s); }},
        CompressedSplit{"powersgd_expert_2_of_4_late_zero_1", plan::GradientCompression::powersgd,
                        [](PlanSpec& s) { expert_2_of_4(s, 1), s.compression.start = 5; }},
        CompressedSplit{"powersgd_expert_4_of_4", plan::GradientCompression::powersgd,
                        [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 4; }},
        CompressedSplit{"fp16_split_2_of_tensor_4", plan::GradientCompression::fp16,
                        [](PlanSpec& s) { split_2_of_tensor_4(s); }},
        CompressedSplit{"bf16_split_2_of_tensor_4", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { split_2_of_tensor_4(s); }},
        CompressedSplit{"bf16_tensor_2", plan::GradientCompression::bf16,
                        [](PlanSpec& s) { s.mesh.tensor = s.mesh.data = 2; }},
        CompressedSplit{"bf16_whole_experts", plan::GradientCompression::bf16, [](PlanSpec& s) { whole_experts(s); }},
        CompressedSplit{"fp16_whole_experts", plan::GradientCompression::fp16, [](PlanSpec& s) { whole_experts(s); }}),
    [](const auto& one) { return std::string(one.param.name); });

// -- fp16 -------------------------------------------------------------------------------------------------------------

Trial balanced(DType precision, bool balances = true) {
  Trial trial = testing::mixture_trial(mixture("top_8_of_16_balanced"));
  trial.model.experts.aux_coefficient = balances ? 0.5 : 0;
  trial.model.experts.z_coefficient = balances ? 0.2 : 0;
  trial.spec.numerics.precision = precision;
  return trial;
}

/// Of routers at step 1, without the scale of the loss.
LogicalTensors router_gradients(const Outcome& run) {
  LogicalTensors out;
  for (const auto& [name, tensor] : run.gradients.at(0)) {
    if (name.find("router.weight") == std::string::npos) continue;
    LogicalTensor& one = out[name] = tensor;
    const double scale = run.steps.front().loss_scale > 0 ? run.steps.front().loss_scale : 1;
    for (float& v : one.values) v = static_cast<float>(v / scale);
  }
  return out;
}

TEST(BalancingInHalfPrecision, IsScaledAsTheLossIs) {
  const Outcome half = testing::train(balanced(DType::fp16)), full = testing::train(balanced(DType::fp32));
  const double same = testing::relative_distance(router_gradients(half), router_gradients(full));
  const double without = testing::relative_distance(router_gradients(testing::train(balanced(DType::fp32, false))),
                                                    router_gradients(full));
  const double loss = testing::loss_distance(half, full);
  std::printf("[ errors   ] routers' gradients %.1e from fp32, %.1e without the losses; loss %.1e\n", same, without,
              loss);
  EXPECT_LE(same, 2e-2);
  EXPECT_GE(without, 0.2) << "the losses that balance hardly count";
  EXPECT_LE(loss, 5e-3);
}

class BalancingInHalves : public ::testing::TestWithParam<Split> {};

TEST_P(BalancingInHalves, IsNearSerialOnEverySplit) {
  static const Outcome alone = testing::train(balanced(DType::fp16));
  Trial trial = balanced(DType::fp16);
  GetParam().set(trial.spec);
  // Partial sums are rounded to 16 bits where they meet, as in precision_test.cpp.
  expect_equal(GetParam().name, testing::train(trial), alone,
               {.loss = 1e-3, .first = 3e-3, .last = 5e-2, .weights = 1e-2, .norm = 3e-2});
}

INSTANTIATE_TEST_SUITE_P(
    Plans, BalancingInHalves,
    ::testing::Values(Split{"data_2", [](PlanSpec& s) { s.mesh.data = 2; }},
                      Split{"expert_2", [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 2; }},
                      Split{"expert_2_of_4_zero_2", [](PlanSpec& s) { expert_2_of_4(s, 2); }},
                      Split{"whole_experts_zero_1", [](PlanSpec& s) { whole_experts(s, 1); }},
                      Split{"pipeline_2", [](PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.pipeline = 2; }}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace experts_apart_test
}  // namespace orrery::exec
