// Copies run beside their caller and in order; what fails in them is thrown where they are asked after. The file of
// offloaded state has room for all of it or says so at the start, and leaves no name behind.
#include "exec/engine/copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <vector>

#include "exec/engine/waiter.h"
#include "exec/failure.h"
#include "exec/files/state_file.h"

namespace orrery::exec {
namespace copies_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void finish(Request& request) {
  Waiter(WaitPolicy{}).finish(request, [] { return std::string("a copy"); });
}

TEST(CopyEngines, RunBesideTheirCallerAndInTheOrderOfTheirStream) {
  CopyEngines engines;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::vector<int> order;
  const auto first = engines.run(plan::Stream::to_host, [&] { open.wait(), order.push_back(1); });
  const auto second = engines.run(plan::Stream::to_host, [&] { order.push_back(2); });
  std::atomic<bool> other{false};
  const auto back = engines.run(plan::Stream::from_host, [&] { other = true; });
  finish(*back);
  EXPECT_TRUE(other) << "the other direction does not wait";
  EXPECT_FALSE(first->test());
  EXPECT_FALSE(second->test());
  gate.set_value();
  finish(*second);
  EXPECT_TRUE(first->test());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(CopyEngines, ThrowWhatFailedWhereItIsAskedAfter) {
  CopyEngines engines;
  const auto bad = engines.run(plan::Stream::to_nvme, [] { throw Failure("the disk is gone"); });
  EXPECT_THROW(finish(*bad), Failure);
  const auto good = engines.run(plan::Stream::to_nvme, [] {});
  finish(*good);
}

TEST(CopyEngines, FinishWhatIsUnderWayBeforeTheyGo) {
  std::atomic<int> done{0};
  {
    CopyEngines engines;
    for (int i = 0; i < 8; ++i) (void)engines.run(plan::Stream::to_host, [&] { ++done; });
  }
  EXPECT_EQ(done, 8);
}

class StateFiles : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::temp_directory_path() / ("orrery-state-" + std::to_string(::getpid()));
};

TEST_F(StateFiles, KeepWhatIsWrittenAndLeaveNoNameBehind) {
  StateFile file((folder_ / "state").string(), 1 << 20);
  EXPECT_TRUE(fs::is_empty(folder_));
  const std::vector<std::byte> out(5000, std::byte{7});
  file.write(file.address() + 12345, out);
  std::vector<std::byte> in(out.size());
  file.read(in, file.address() + 12345);
  EXPECT_EQ(in, out);
}

TEST_F(StateFiles, SayWhereTheyCannotBeMade) {
  try {
    const StateFile file((folder_ / "no" / "where").string(), 1 << 20);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("No such file or directory"));
    EXPECT_THAT(failure.what(), HasSubstr((folder_ / "no" / "where").string()));
    EXPECT_EQ(failure.kind(), FailureKind::environment);
  }
}

TEST_F(StateFiles, FindAFullDiskAtTheStart) {
  try {
    const StateFile file((folder_ / "state").string(), std::int64_t{1} << 60);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("no room for 1152921504606846976 bytes"));
  }
}

}  // namespace copies_test
}  // namespace orrery::exec
