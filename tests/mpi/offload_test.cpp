// What a run's metrics say of the memories beside the device's is what the schedule has there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/launch/supervise.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "tests/exec/training.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace offload_test {

using testing::Folder;
using testing::Trial;

std::vector<nlohmann::json> metrics_of(Trial trial, RunOutcome* ended = nullptr) {
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  const RunOutcome outcome = supervise(command, {}, nullptr);
  if (ended) *ended = outcome;
  EXPECT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  std::vector<nlohmann::json> out;
  std::ifstream in(command.run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST(Metrics, MeasureTheHostsAndTheFilesPeaksBesideTheDevices) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 2, trial.spec.states.zero_stage = 2;
  trial.spec.offload = {plan::Space::host, plan::Space::nvme, plan::Space::device, 1};
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  const std::vector<nlohmann::json> lines = metrics_of(trial);
  ASSERT_FALSE(lines.empty());
  const nlohmann::json& last = lines.back();
  std::int64_t host = 0, nvme = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const plan::Placement placed = plan::place(schedule.class_of(rank));
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_EQ(last["host_peak_bytes_by_rank"][r], placed.host.arena_bytes);
    EXPECT_EQ(last["host_live_peak_bytes_by_rank"][r], placed.host.peak_live_bytes);
    EXPECT_EQ(last["nvme_peak_bytes_by_rank"][r], placed.nvme.arena_bytes);
    EXPECT_EQ(last["nvme_live_peak_bytes_by_rank"][r], placed.nvme.peak_live_bytes);
    host = std::max(host, placed.host.arena_bytes);
    nvme = std::max(nvme, placed.nvme.arena_bytes);
  }
  EXPECT_GT(nvme, 0);
  EXPECT_EQ(last["host_peak_bytes"], host);
  EXPECT_EQ(last["nvme_peak_bytes"], nvme);
}

TEST(Metrics, SayWhichStepsAnOffloadedFp16RunSkips) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 2, trial.spec.states.zero_stage = 1;
  trial.spec.numerics.precision = models::DType::fp16;
  trial.spec.offload.optimizer = plan::Space::host;
  trial.training.loss_scaling = {std::ldexp(1.0, 26), 100, 64};
  const std::vector<nlohmann::json> lines = metrics_of(trial);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front()["skipped"], true);
  EXPECT_EQ(lines.back()["skipped"], false);
  EXPECT_LT(lines.back()["loss"], lines.front()["loss"]);
  EXPECT_GT(lines.back()["host_peak_bytes"], 0);
}

TEST(Metrics, CountWhatLosslessStorageHadNoRoomForAndTheRunSaysWhatWouldDo) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.model.activation = models::Activation::relu;
  trial.spec.mesh.data = 2, trial.spec.shape.micro_batch = 1;
  trial.spec.compression.activations = plan::ActivationEncoding::lossless;
  const std::int64_t tensors = trial.model.layers * trial.spec.shape.batch;  // of sequences one by one
  for (const double capacity : {0.02, 1.0}) {
    trial.spec.compression.capacity = capacity;
    RunOutcome ended;
    const std::vector<nlohmann::json> lines = metrics_of(trial, &ended);
    ASSERT_FALSE(lines.empty());
    const std::int64_t without_room = capacity < 1 ? tensors : 0;
    for (const nlohmann::json& line : lines) {
      EXPECT_EQ(line["lossless_tensors"], tensors);
      EXPECT_EQ(line["lossless_computed_again"], without_room);
      EXPECT_GT(line["lossless_densest"], 0.2);
    }
    ASSERT_TRUE(ended.completion);
    EXPECT_EQ(ended.completion->lossless_tensors, tensors * std::ssize(lines));
    EXPECT_EQ(ended.completion->lossless_again, without_room * std::ssize(lines));
    const auto warning = std::find_if(ended.diagnostics.begin(), ended.diagnostics.end(),
                                      [](const base::Diagnostic& d) { return d.code == "P100"; });
    EXPECT_EQ(warning != ended.diagnostics.end(), capacity < 1);
    if (warning == ended.diagnostics.end()) continue;
    EXPECT_EQ(warning->severity, base::Severity::warning);
    EXPECT_NE(warning->help.find("capacity: 0."), std::string::npos) << warning->help;
  }
}

TEST(Metrics, AreSilentOfMemoriesThatHoldNothing) {
  const std::vector<nlohmann::json> lines = metrics_of(testing::golden_trial("cosine_clipped"));
  ASSERT_FALSE(lines.empty());
  EXPECT_FALSE(lines.back().contains("host_peak_bytes"));
  EXPECT_FALSE(lines.back().contains("nvme_peak_bytes"));
  EXPECT_FALSE(lines.back().contains("lossless_tensors"));
}

}  // namespace offload_test
}  // namespace orrery::exec
