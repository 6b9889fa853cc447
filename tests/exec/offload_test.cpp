// Plans that keep part of the model outside the device's memory give the numbers of those that do not, bit for bit
// where nothing else differs; each memory holds what was predicted, and a device too small for the whole runs what
// leaves it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "exec/failure.h"
#include "plan/lower/lower.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace offload_test {

using plan::Space;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Trial;

/// The golden GPT, deeper; or a Llama with grouped queries and an untied head.
Trial trial_of(bool llama) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.model.layers = 4;
  trial.training.initial_weights.clear();
  trial.steps = 4;
  trial.gradients_at = {0, 3};
  if (!llama) return trial;
  testing::make_llama(trial.model);
  return trial;
}

std::int64_t steps_of(const plan::Schedule& schedule, const plan::RankClass& c, plan::Stream stream,
                      std::int64_t* bytes = nullptr) {
  static_cast<void>(schedule);
  std::int64_t count = 0;
  for (const plan::Entry& entry : c.program)
    for (const plan::Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
      if (step.kind != plan::StepKind::copy || step.stream != stream) continue;
      ++count;
      if (bytes) *bytes += step.message_bytes(c.buffers);
    }
  return count;
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
  bool llama = false;
};

void expect_memory(const Outcome& run) {
  for (std::size_t rank = 0; rank < run.memory.size(); ++rank) {
    const plan::Placement& placed = run.placements[rank];
    EXPECT_EQ(run.memory[rank].peak_live, placed.peak_live_bytes) << "rank " << rank;
    EXPECT_LE(run.memory[rank].peak_extent, placed.arena_bytes);
    EXPECT_EQ(run.host_memory[rank].peak_live, placed.host.peak_live_bytes) << "rank " << rank;
    EXPECT_LE(run.host_memory[rank].peak_extent, placed.host.arena_bytes);
    EXPECT_EQ(run.file_memory[rank].peak_live, placed.nvme.peak_live_bytes) << "rank " << rank;
  }
}

void expect_copies(const Trial& trial, const Outcome& run) {
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  for (std::size_t rank = 0; rank < run.spans.size(); ++rank) {
    const plan::RankClass& c = schedule.class_of(static_cast<int>(rank));
    for (const plan::Stream stream :
         {plan::Stream::to_host, plan::Stream::from_host, plan::Stream::to_nvme, plan::Stream::from_nvme}) {
      const std::int64_t seen = std::count_if(run.spans[rank].begin(), run.spans[rank].end(), [&](const RawSpan& span) {
        const plan::Entry& entry = c.program[static_cast<std::size_t>(span.at.entry)];
        const plan::Step& step =
            c.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(span.at.step)];
        return step.kind == plan::StepKind::copy && step.stream == stream;
      });
      EXPECT_EQ(seen, trial.steps * steps_of(schedule, c, stream)) << plan::name_of(stream);
    }
  }
}

class Activations : public ::testing::TestWithParam<Case> {};

TEST_P(Activations, OnTheHostTrainToTheSameBitsInLessDeviceMemory) {
  Trial trial = trial_of(GetParam().llama);
  GetParam().set(trial.spec);
  const Outcome here = testing::train(trial);
  trial.spec.offload.activations = Space::host;
  const Outcome there = testing::train(trial);
  ASSERT_EQ(there.steps.size(), here.steps.size());
  for (std::size_t i = 0; i < here.steps.size(); ++i) {
    EXPECT_EQ(there.steps[i].loss, here.steps[i].loss) << "step " << i;
    EXPECT_EQ(there.steps[i].gradient_norm, here.steps[i].gradient_norm) << "step " << i;
  }
  EXPECT_EQ(testing::relative_distance(there.weights, here.weights), 0);
  expect_memory(there);
  expect_copies(trial, there);
  std::int64_t out = 0, in = 0, device_here = 0, device_there = 0;
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  for (const plan::RankClass& c : schedule.classes) {
    EXPECT_EQ(steps_of(schedule, c, plan::Stream::to_host, &out), steps_of(schedule, c, plan::Stream::from_host, &in));
    device_here += here.placements[static_cast<std::size_t>(c.representative)].arena_bytes;
    device_there += there.placements[static_cast<std::size_t>(c.representative)].arena_bytes;
  }
  EXPECT_GT(out, 0) << "something left";
  EXPECT_EQ(out, in);
  EXPECT_LT(device_there, device_here);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Activations,
    ::testing::Values(
        Case{"serial", [](plan::PlanSpec&) {}}, Case{"llama", [](plan::PlanSpec&) {}, true},
        Case{"prefetch_2_gpipe",
             [](plan::PlanSpec& s) { s.offload.prefetch = 2, s.stages.order = plan::Order::gpipe; }},
        Case{"recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
        Case{"llama_recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }, true},
        Case{"selective",
             [](plan::PlanSpec& s) { s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective; }},
        Case{"data_2_zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"data_2_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"data_2_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"llama_data_2_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }, true},
        Case{"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
        Case{"tensor_2_sequence_recompute",
             [](plan::PlanSpec& s) {
               s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.recomputation.what = plan::Recompute::full;
             }},
        Case{"pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
        Case{"pipeline_2_gpipe", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe; }},
        Case{"pipeline_2_interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2; }},
        Case{"pipeline_2_zb_v",
             [](plan::PlanSpec&
                    s) { s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = plan::Order::zb_v; }},
        Case{"pipeline_2_zb_h1", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1; }},
        Case{"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
        Case{"data_2_tensor_2_pipeline_2",
             [](plan::PlanSpec& s) { s.mesh.data = s.mesh.tensor = s.mesh.pipeline = 2, s.states.zero_stage = 1; }}),
    [](const auto& one) { return std::string(one.param.name); });

class States : public ::testing::TestWithParam<Case> {};

// Sums of gradients that are made layer by layer round otherwise than those that products add to themselves; where both
// are made layer by layer (ZeRO 2 and 3) nothing differs.
TEST_P(States, ElsewhereTrainEqualToThoseOnTheDevice) {
  Trial trial = trial_of(GetParam().llama);
  GetParam().set(trial.spec);
  Trial plain = trial;
  plain.spec.offload = {};
  const Outcome here = testing::train(plain), there = testing::train(trial);
  ASSERT_EQ(there.steps.size(), here.steps.size());
  const bool same_sums = trial.spec.states.zero_stage >= 2 || trial.spec.offload.optimizer == Space::device;
  for (std::size_t i = 0; i < here.steps.size(); ++i) {
    if (same_sums) {
      EXPECT_EQ(there.steps[i].loss, here.steps[i].loss) << "step " << i;
      EXPECT_EQ(there.steps[i].gradient_norm, here.steps[i].gradient_norm) << "step " << i;
    }
    EXPECT_NEAR(there.steps[i].gradient_norm, here.steps[i].gradient_norm, 1e-5 * here.steps[i].gradient_norm);
  }
  EXPECT_LE(testing::loss_distance(there, here), 1e-5);
  EXPECT_LE(testing::relative_distance(there.gradients.at(3), here.gradients.at(3)), 1e-5);
  EXPECT_LE(testing::relative_distance(there.weights, here.weights), same_sums ? 0 : 1e-5);
  expect_memory(there);
  expect_copies(trial, there);
  for (std::size_t rank = 0; rank < there.placements.size(); ++rank) {
    EXPECT_LT(there.placements[rank].arena_bytes, here.placements[rank].arena_bytes) << "rank " << rank;
    const plan::Offload& o = trial.spec.offload;
    EXPECT_EQ(there.placements[rank].nvme.arena_bytes > 0, o.optimizer == Space::nvme || o.parameters == Space::nvme);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, States,
    ::testing::Values(
        Case{"optimizer_host", [](plan::PlanSpec& s) { s.offload.optimizer = Space::host; }},
        Case{"optimizer_nvme", [](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme; }},
        Case{"llama_optimizer_host", [](plan::PlanSpec& s) { s.offload.optimizer = Space::host; }, true},
        Case{"llama_optimizer_nvme", [](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme; }, true},
        Case{"parameters_host", [](plan::PlanSpec& s) { s.offload.parameters = Space::host; }},
        Case{"parameters_nvme", [](plan::PlanSpec& s) { s.offload.parameters = Space::nvme; }},
        Case{"llama_parameters_nvme", [](plan::PlanSpec& s) { s.offload.parameters = Space::nvme; }, true},
        Case{"all_host",
             [](plan::PlanSpec& s) { s.offload = {Space::host, Space::host, Space::host, 2}; }},
        Case{"all_nvme",
             [](plan::PlanSpec& s) { s.offload = {Space::host, Space::nvme, Space::nvme, 1}; }},
        Case{"llama_all_nvme",
             [](plan::PlanSpec& s) { s.offload = {Space::host, Space::nvme, Space::nvme, 1}; }, true},
        Case{"optimizer_host_recompute",
             [](plan::PlanSpec& s) {
               s.offload.optimizer = Space::host, s.recomputation.what = plan::Recompute::full;
             }},
        Case{"optimizer_host_data_2", [](plan::PlanSpec& s) { s.offload.optimizer = Space::host, s.mesh.data = 2; }},
        Case{"optimizer_host_zero_1",
             [](plan::PlanSpec& s) { s.offload.optimizer = Space::host, s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"optimizer_host_zero_2",
             [](plan::PlanSpec& s) { s.offload.optimizer = Space::host, s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"optimizer_host_zero_3",
             [](plan::PlanSpec& s) { s.offload.optimizer = Space::host, s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"optimizer_host_zero_1_sub_groups",
             [](plan::PlanSpec& s) {
               s.offload.optimizer = Space::host, s.mesh.data = 4, s.states.zero_stage = 1, s.states.zero_group = 2;
             }},
        Case{"all_nvme_zero_3_sub_groups",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::nvme, Space::nvme, 1}, s.mesh.data = 4, s.states.zero_stage = 3;
               s.states.zero_group = 2;
             }},
        Case{"optimizer_nvme_zero_1",
             [](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"optimizer_nvme_zero_2",
             [](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"all_host_zero_3",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::host, Space::host, 1}, s.mesh.data = 2, s.states.zero_stage = 3;
             }},
        Case{"all_nvme_zero_3",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::nvme, Space::nvme, 1}, s.mesh.data = 2, s.states.zero_stage = 3;
             }},
        Case{"llama_all_nvme_zero_3",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::nvme, Space::nvme, 2}, s.mesh.data = 2, s.states.zero_stage = 3;
             },
             true},
        Case{"parameters_host_zero_3",
             [](plan::PlanSpec& s) { s.offload.parameters = Space::host, s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"all_nvme_tensor_2",
             [](plan::PlanSpec& s) { s.offload = {Space::host, Space::nvme, Space::nvme, 1}, s.mesh.tensor = 2; }},
        Case{"optimizer_host_tensor_2_sequence",
             [](plan::PlanSpec& s) {
               s.offload.optimizer = Space::host, s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
             }},
        Case{"all_host_pipeline_2",
             [](plan::PlanSpec& s) { s.offload = {Space::host, Space::host, Space::host, 1}, s.mesh.pipeline = 2; }},
        Case{"optimizer_nvme_pipeline_2_gpipe",
             [](plan::PlanSpec& s) {
               s.offload.optimizer = Space::nvme, s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe;
             }},
        Case{"optimizer_host_interleaved",
             [](plan::PlanSpec& s) {
               s.offload.optimizer = Space::host, s.mesh.pipeline = s.stages.virtual_stages = 2;
             }},
        Case{"all_nvme_zero_3_pipeline_2_recompute",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::nvme, Space::nvme, 1}, s.mesh.data = 2, s.states.zero_stage = 3;
               s.mesh.pipeline = 2;
               s.recomputation.what = plan::Recompute::full;
             }},
        Case{"all_host_zero_2_tensor_2",
             [](plan::PlanSpec& s) {
               s.offload = {Space::host, Space::host, Space::device, 1}, s.mesh.data = s.mesh.tensor = 2;
               s.states.zero_stage = 2;
             }}),
    [](const auto& one) { return std::string(one.param.name); });

/// In 16 bits; fp16 with a scale that overflows at first.
Trial narrow_trial(models::DType precision, const Case& one) {
  Trial trial = trial_of(one.llama);
  trial.spec.numerics.precision = precision;
  trial.training.loss_scaling = {std::ldexp(1.0, 26), 4, 64};
  trial.steps = 6;
  trial.gradients_at = {0, 5};
  one.set(trial.spec);
  return trial;
}

class NarrowStates : public ::testing::TestWithParam<std::tuple<models::DType, Case>> {};

// Of one micro-batch a replica, and no table that two layers use, there is nothing to add up: not a bit differs. Else
// sums on the host round a layer's gradients once more than a product that adds to them.
TEST_P(NarrowStates, ElsewhereTrainAsOnTheDeviceAndSkipTheSameSteps) {
  const auto& [precision, one] = GetParam();
  const Trial trial = narrow_trial(precision, one);
  Trial plain = trial;
  plain.spec.offload = {};
  const Outcome here = testing::train(plain), there = testing::train(trial);
  const bool same_sums = one.llama && trial.spec.shape.batch == trial.spec.mesh.data * trial.spec.shape.micro_batch;
  ASSERT_EQ(there.steps.size(), here.steps.size());
  for (std::size_t i = 0; i < here.steps.size(); ++i) {
    EXPECT_EQ(there.steps[i].skipped, here.steps[i].skipped) << "step " << i;
    EXPECT_EQ(there.steps[i].loss_scale, here.steps[i].loss_scale) << "step " << i;
    if (!same_sums) continue;
    EXPECT_EQ(there.steps[i].loss, here.steps[i].loss) << "step " << i;
    if (!here.steps[i].skipped) {
      EXPECT_EQ(there.steps[i].gradient_norm, here.steps[i].gradient_norm) << "step " << i;
    }
  }
  EXPECT_EQ(there.steps.front().skipped, precision == models::DType::fp16);
  EXPECT_FALSE(there.steps.back().skipped);
  const bool wide = precision == models::DType::bf16;  // whose gradients are in fp32
  EXPECT_LE(testing::loss_distance(there, here), same_sums ? 0 : 1e-3);
  EXPECT_LE(testing::relative_distance(there.gradients.at(5), here.gradients.at(5)), same_sums ? 0
                                                                                     : wide    ? 2e-2
                                                                                               : 4e-3);
  EXPECT_LE(testing::relative_distance(there.weights, here.weights), same_sums ? 0 : 2e-3);
  expect_memory(there);
  expect_copies(trial, there);
}

void one_micro_batch(plan::PlanSpec& s) {
  s.shape.micro_batch = s.shape.batch / s.mesh.data;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, NarrowStates,
    ::testing::Combine(
        ::testing::Values(models::DType::fp16, models::DType::bf16),
        ::testing::Values(
            Case{"host", [](plan::PlanSpec& s) { s.offload.optimizer = Space::host; }},
            Case{"all_nvme", [](plan::PlanSpec& s) { s.offload = {Space::host, Space::nvme, Space::nvme, 1}; }},
            Case{"llama_host_in_one",
                 [](plan::PlanSpec& s) { s.offload.optimizer = Space::host, one_micro_batch(s); }, true},
            Case{"llama_nvme_data_2_in_one",
                 [](plan::PlanSpec& s) {
                   s.offload.optimizer = Space::nvme, s.mesh.data = 2, one_micro_batch(s);
                 }, true},
            Case{"llama_host_zero_1_in_one",
                 [](plan::PlanSpec& s) {
                   s.offload.optimizer = Space::host, s.mesh.data = 2, s.states.zero_stage = 1, one_micro_batch(s);
                 },
                 true},
            Case{"llama_nvme_zero_2_in_one",
                 [](plan::PlanSpec& s) {
                   s.offload.optimizer = Space::nvme, s.mesh.data = 2, s.states.zero_stage = 2, one_micro_batch(s);
                 },
                 true},
            Case{"llama_all_nvme_zero_3_in_one",
                 [](plan::PlanSpec& s) {
                   s.offload = {Space::host, Space::nvme, Space::nvme, 2}, s.mesh.data = 2, s.states.zero_stage = 3;
                   one_micro_batch(s);
                 },
                 true},
            Case{"host_zero_1_sub_groups",
                 [](plan::PlanSpec& s) {
                   s.offload.optimizer = Space::host, s.mesh.data = 4, s.states.zero_stage = 1, s.states.zero_group = 2;
                 }},
            Case{"host_zero_2_tensor_2",
                 [](plan::PlanSpec& s) {
                   s.offload.optimizer = Space::host, s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 2;
                 }},
            Case{"nvme_pipeline_2",
                 [](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.pipeline = 2; }})),
    [](const auto& tested) {
      return std::string(models::name_of(std::get<0>(tested.param))) + "_" + std::get<1>(tested.param).name;
    });

TEST(Offload, AStepThatIsSkippedChangesNothingWhereverItsStatesAre) {
  for (const auto set :
       {+[](plan::PlanSpec& s) { s.offload.optimizer = Space::host; },
        +[](plan::PlanSpec& s) {
          s.offload = {Space::host, Space::nvme, Space::nvme, 1};
        },
        +[](plan::PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.data = 2, s.states.zero_stage = 2; }}) {
    Trial trial = trial_of(false);
    trial.spec.numerics.precision = models::DType::fp16;
    trial.training.loss_scaling = {std::ldexp(1.0, 60), 2000, 1.0001};
    trial.training.order = plan::DataOrder::sequential;
    trial.gradients_at = {};
    trial.steps = 3;
    set(trial.spec);
    Trial device = trial;
    device.spec.offload = {};
    const Outcome there = testing::train(trial), here = testing::train(device);
    for (std::size_t i = 0; i < there.steps.size(); ++i) {
      EXPECT_TRUE(there.steps[i].skipped);
      EXPECT_EQ(there.steps[i].loss, here.steps[i].loss) << "what computes reads other parameters";
    }
    trial.steps = 0;
    EXPECT_EQ(testing::relative_distance(there.weights, testing::train(trial).weights), 0);
  }
}

TEST(Offload, LetsADeviceRunWhatItCouldNotHold) {
  Trial trial = trial_of(false);
  trial.spec.shape.micro_batch = 8;
  trial.steps = 2;
  trial.gradients_at.clear();
  const Outcome whole = testing::train(trial);
  Trial leaving = trial;
  leaving.spec.offload.activations = Space::host;
  const Outcome less = testing::train(leaving);
  const std::int64_t cap = (whole.placements[0].arena_bytes + less.placements[0].arena_bytes) / 2;
  const auto capped = [cap](Transport&) { return testing::Devices{make_cpu_backend(1, cap), nullptr}; };
  trial.devices = leaving.devices = capped;
  EXPECT_EQ(testing::train(leaving).steps.back().loss, whole.steps.back().loss);
  try {
    (void)testing::train(trial);
    FAIL() << "the device holds more than it has";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("device memory"));
    EXPECT_THAT(failure.what(), HasSubstr("offload"));
    EXPECT_EQ(failure.kind(), FailureKind::environment);
  }
}

}  // namespace offload_test
}  // namespace orrery::exec
