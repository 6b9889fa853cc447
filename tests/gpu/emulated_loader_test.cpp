// The loader of the CUDA module, where there is none to load, and the environment for ranks that share a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "exec/engine/cuda_loader.h"

namespace orrery::exec {
namespace emulated_loader_test {

TEST(CudaLoader, SaysThatTheModuleIsMissing) {
  const CudaLoad load = load_cuda({"/nonexistent-folder"});
  EXPECT_EQ(load.module, nullptr);
  EXPECT_NE(load.reason.find("could not be loaded"), std::string::npos) << load.reason;
}

TEST(CudaLoader, ReportsAModuleThatDoesNotOpenRatherThanOneThatIsNotThere) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "orrery-broken-module";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / kCudaModuleFile) << "no library";
  const CudaLoad load = load_cuda({"/nonexistent-folder", folder.string()});
  EXPECT_EQ(load.module, nullptr);
  EXPECT_NE(load.reason.find(folder.string()), std::string::npos) << load.reason;
  std::filesystem::remove_all(folder);
}

TEST(SharedGpu, GivesEachRankAHostOfItsOwnAndOtherwiseEqualSettings) {
  std::set<std::string> hosts;
  std::set<std::map<std::string, std::string>> others;
  for (int rank = 0; rank < 4; ++rank) {
    const auto list = shared_gpu_environment(rank);
    std::map<std::string, std::string> variables(list.begin(), list.end());
    hosts.insert(variables.at("NCCL_HOSTID"));
    variables.erase("NCCL_HOSTID");
    others.insert(variables);
  }
  EXPECT_EQ(hosts.size(), 4U);
  EXPECT_EQ(others.size(), 1U);
}

TEST(SharedGpu, LeavesWhatTheUserHasSetExceptTheHost) {
  setenv("ORRERY_TEST_SET", "user", 1);
  unsetenv("ORRERY_TEST_UNSET");
  setenv("NCCL_HOSTID", "user", 1);
  apply_environment({{"ORRERY_TEST_SET", "ours"}, {"ORRERY_TEST_UNSET", "ours"}, {"NCCL_HOSTID", "ours"}});
  EXPECT_STREQ(std::getenv("ORRERY_TEST_SET"), "user");
  EXPECT_STREQ(std::getenv("ORRERY_TEST_UNSET"), "ours");
  EXPECT_STREQ(std::getenv("NCCL_HOSTID"), "ours");
  unsetenv("NCCL_HOSTID");
}

}  // namespace emulated_loader_test
}  // namespace orrery::exec
