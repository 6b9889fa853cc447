// Guards over processes: what they find ends all ranks with exit code 1 and the code of what was found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "exec/state/checkpoint.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace guards_test {

using testing::Folder;
using testing::Trial;

/// A fault that mpiexec hands on to its ranks while this lives.
class Planted {
 public:
  explicit Planted(const char* fault) { ::setenv("ORRERY_FAULT", fault, 1); }
  ~Planted() { ::unsetenv("ORRERY_FAULT"); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

RunOutcome run_with(const char* fault, const Folder& folder) {
  Trial trial = testing::golden_trial("constant");
  trial.spec.mesh.data = 2;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 12;
  command.checkpoint_every = 4;
  command.hash_every = 0;
  const Planted planted(fault);
  return supervise(command, {}, nullptr);
}

void expect_found(const RunOutcome& outcome, const Folder& folder, const char* code) {
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.reason << outcome.error_tail;
  EXPECT_TRUE(std::any_of(outcome.diagnostics.begin(), outcome.diagnostics.end(),
                          [&](const base::Diagnostic& one) { return one.code == code; }))
      << base::render(outcome.diagnostics, false) << outcome.reason;
  const auto checkpoints = folder.path() / "run" / "checkpoints";
  EXPECT_EQ(latest_checkpoint(checkpoints), checkpoints / "step-000004");
}

TEST(GuardsOverProcesses, EndARunWhoseReplicasDiffer) {
  const Folder folder;
  expect_found(run_with("flip:rank=1,step=6,part=3,bit=22", folder), folder, "R0025");
}

TEST(GuardsOverProcesses, EndARunWhoseLossIsNoNumber) {
  const Folder folder;
  expect_found(run_with("nan:rank=1,step=6,part=3", folder), folder, "R0020");
}

}  // namespace guards_test
}  // namespace orrery::exec
