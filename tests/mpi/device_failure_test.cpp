// A rank whose device does not let go of it: its reason is out all the same, and it ends.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "exec/engine/cuda_loader.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace device_failure_test {

namespace fs = std::filesystem;

/// The worker, with the module of hanging_module.cpp beside it; what came of the run, and how long it took.
struct Hanging {
  RunOutcome outcome;
  std::chrono::duration<double> took{};
};

Hanging run_hanging(const char* who_finds_out) {
  testing::Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 2;
  trial.spec.states.zero_stage = 1;
  const testing::Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.worker = folder.path() / "orrery-worker";
  fs::copy_file(ORRERY_WORKER, command.worker);
  fs::copy_file(ORRERY_HANGING_MODULE, folder.path() / kCudaModuleFile);
  command.backend = "cuda";
  command.deadline = std::chrono::seconds(2);
  command.step_timeout = std::chrono::seconds(30);
  setenv("ORRERY_HANGING", who_finds_out, 1);
  Hanging out;
  const auto begin = std::chrono::steady_clock::now();
  out.outcome = supervise(command, {}, nullptr);
  out.took = std::chrono::steady_clock::now() - begin;
  unsetenv("ORRERY_HANGING");
  return out;
}

void expect_said_and_ended(const Hanging& one) {
  EXPECT_EQ(one.outcome.end, RunEnd::failed) << one.outcome.reason;
  EXPECT_EQ(one.outcome.reason, "rank 0: NCCL: reduce-scatter: rank 1 is gone");
  EXPECT_EQ(one.outcome.worker_code, 1);
  EXPECT_LT(one.took.count(), 25) << "it was the supervisor who ended it";
}

TEST(DeviceThatDoesNotLetGo, DoesNotKeepARankThatFails) {
  expect_said_and_ended(run_hanging("rank"));
}

TEST(DeviceThatDoesNotLetGo, DoesNotKeepARankWhoseWatchFindsOut) {
  expect_said_and_ended(run_hanging("watch"));
}

}  // namespace device_failure_test
}  // namespace orrery::exec
