// What a run's metrics say of the memories beside the device's is what the schedule has there.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/supervise.h"
#include "plan/lower.h"
#include "plan/place.h"
#include "tests/exec/training.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace {

using testing::Folder;
using testing::Trial;

std::vector<nlohmann::json> metrics_of(Trial trial) {
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  const RunOutcome outcome = supervise(command, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  std::vector<nlohmann::json> out;
  std::ifstream in(command.run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST(Metrics, MeasureTheHostsAndTheFilesPeaksBesideTheDevices) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.data = 2, trial.spec.zero_stage = 2;
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

TEST(Metrics, AreSilentOfMemoriesThatHoldNothing) {
  const std::vector<nlohmann::json> lines = metrics_of(testing::golden_trial("cosine_clipped"));
  ASSERT_FALSE(lines.empty());
  EXPECT_FALSE(lines.back().contains("host_peak_bytes"));
  EXPECT_FALSE(lines.back().contains("nvme_peak_bytes"));
}

}  // namespace
}  // namespace orrery::exec
