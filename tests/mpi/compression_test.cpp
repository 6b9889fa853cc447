// Over MPI: gradients in fewer bits, with and without a progress thread, and encoded activations. And the curves of
// losses over 500 steps, beside full precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/lower/lower.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace compression_test {

using plan::ActivationEncoding;
using plan::GradientCompression;
using testing::Folder;
using testing::Line;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  plan::Compression compression;
  void (*set)(plan::PlanSpec&);
};

class CompressedOverMpi : public ::testing::TestWithParam<Case> {};

TEST_P(CompressedOverMpi, TrainsAsInThreads) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.compression = GetParam().compression;
  GetParam().set(trial.spec);
  trial.gradients_at = {};
  const Outcome threads = testing::train(trial);
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.progress_thread = trial.spec.states.overlap_gradients;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), threads.steps.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_NEAR(lines[i].loss, threads.steps[i].loss, 1e-5 * threads.steps[i].loss) << "step " << i + 1;
  for (std::size_t rank = 0; rank < threads.placements.size(); ++rank)
    EXPECT_EQ(lines.back().arena_peak[rank], threads.placements[rank].arena_bytes);
}

constexpr ActivationEncoding kWhole = ActivationEncoding::none;

INSTANTIATE_TEST_SUITE_P(
    Plans, CompressedOverMpi,
    ::testing::Values(
        Case{"bf16_data_2", {GradientCompression::bf16, kWhole, 4, 2}, [](plan::PlanSpec& s) { s.mesh.data = 2; }},
        Case{"fp16_zero_3",
             {GradientCompression::fp16, kWhole, 4, 2},
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"bf16_zero_1_overlapped",
             {GradientCompression::bf16, kWhole, 4, 2},
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
        Case{"powersgd_data_2_overlapped_fp8",
             {GradientCompression::powersgd, ActivationEncoding::fp8, 2, 1.5},
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }}),
    [](const auto& one) { return std::string(one.param.name); });

/// A small GPT over the bytes of the licence texts that every Debian carries.
Trial curve_of(int data, const plan::Compression& compression) {
  Trial trial = testing::golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  m.layers = 4, m.hidden = 64, m.head_dim = 16, m.ffn_hidden = 256, m.vocab = 256, m.max_sequence = 64;
  trial.spec.mesh.data = data;
  trial.spec.shape.batch = 8;
  trial.spec.shape.micro_batch = 8 / data;
  trial.spec.shape.sequence = 64;
  trial.spec.numerics.vocab_multiple = 128;
  trial.spec.compression = compression;
  trial.training.steps = trial.steps = 500;
  trial.training.data = "/usr/share/common-licenses";
  trial.training.order = plan::DataOrder::shuffled;
  trial.training.initial_weights.clear();
  trial.training.optimizer.learning_rate = 3e-3;
  trial.training.schedule = {20, plan::Decay::cosine, 3e-5};
  trial.gradients_at = {};
  trial.check = Arena::Check::none;
  return trial;
}

double mean(const Outcome& outcome, std::size_t first, std::size_t last) {
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += outcome.steps[i].loss;
  return sum / static_cast<double>(last - first);
}

/// Bytes that a rank sends of its gradients in a step, of two.
std::int64_t sent(const Trial& trial) {
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  const plan::RankClass& c = schedule.classes.front();
  std::int64_t bytes = 0;
  for (const plan::Entry& entry : c.program)
    for (const plan::Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
      if (step.kind == plan::StepKind::collective && step.phase == plan::Phase::gradient_reduce)
        bytes += step.message_bytes(c.buffers) * (step.collective == plan::CollectiveKind::all_reduce ? 2 : 1) / 2;
  return bytes;
}

TEST(SlowCompressionCurves, StayNearFullPrecisionOverFiveHundredSteps) {
  constexpr std::size_t kSteps = 500, kWindow = 20, kLast = 50;
  struct Curve {
    const char* name;
    int data;
    plan::Compression compression;
    double bound;  ///< of the mean of the last 50 losses, relative to fp32's
  };
  const auto powersgd = [](int rank) { return plan::Compression{GradientCompression::powersgd, kWhole, rank, 2}; };
  const auto waiting = [](ActivationEncoding how) { return plan::Compression{GradientCompression::none, how, 4, 2}; };
  Outcome full;
  double end = 0;
  for (const Curve& c :
       {Curve{"fp32", 2, {}, 0}, Curve{"gradients bf16", 2, {GradientCompression::bf16, kWhole, 4, 2}, 0.01},
        Curve{"gradients fp16", 2, {GradientCompression::fp16, kWhole, 4, 2}, 0.01},
        Curve{"PowerSGD, rank 4", 2, powersgd(4), 0.1}, Curve{"PowerSGD, rank 2", 2, powersgd(2), 0.1},
        Curve{"PowerSGD, rank 1", 2, powersgd(1), 0.25},
        Curve{"activations fp16", 2, waiting(ActivationEncoding::fp16), 0.01},
        Curve{"activations fp10", 2, waiting(ActivationEncoding::fp10), 0.02},
        Curve{"activations fp8", 2, waiting(ActivationEncoding::fp8), 0.03}}) {
    const Trial trial = curve_of(c.data, c.compression);
    const Outcome outcome = testing::train(trial);
    ASSERT_EQ(outcome.steps.size(), kSteps);
    if (full.steps.empty()) {
      full = outcome;
      end = mean(full, kSteps - kLast, kSteps);
      EXPECT_LT(end, 0.6 * full.steps.front().loss) << "it learns";
    }
    double sum = 0, most = 0;
    for (std::size_t at = 0; at + kWindow <= kSteps; at += kWindow) {
      const double apart = std::abs(mean(outcome, at, at + kWindow) - mean(full, at, at + kWindow));
      sum += apart;
      most = std::max(most, apart);
    }
    const double last = mean(outcome, kSteps - kLast, kSteps) / end - 1;
    std::printf(
        "[ curve    ] %-18s last 50 %.4f (%+.2f %%), windows of 20 steps apart by %.4f in the mean, %.4f at most; "
        "arena "
        "%lld bytes; a rank sends %lld bytes of gradients a step\n",
        c.name, mean(outcome, kSteps - kLast, kSteps), 100 * last, sum / (kSteps / kWindow), most,
        static_cast<long long>(outcome.placements[0].arena_bytes), static_cast<long long>(sent(trial)));
    EXPECT_LE(std::abs(last), c.bound) << c.name;
  }
}

}  // namespace compression_test
}  // namespace orrery::exec
