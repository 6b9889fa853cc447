// Runs the tests with the BLAS kernels that training uses, and tests how they are chosen.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "exec/cpu/blas_core.h"

namespace orrery::exec {
namespace cpu_environment_test {

// Before main: this program has no command line of its own to keep, but its arguments must survive.
const bool chosen = [] {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) words.emplace_back(text.c_str() + at);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execute_again_with_better_blas_core(arguments.data());
  return true;
}();

constexpr CpuFeatures avx512{true, true}, avx2{true, false}, neither{false, false};

TEST(BlasCore, FallbackToOldKernelsIsReplacedByWhatTheCpuCanRun) {
  EXPECT_EQ(better_blas_core("Prescott", avx512), "SkylakeX");
  EXPECT_EQ(better_blas_core("Prescott", avx2), "Haswell");
  EXPECT_EQ(better_blas_core("Haswell", avx512), "SkylakeX");
  EXPECT_EQ(better_blas_core("Nehalem", avx2), "Haswell");
}

TEST(BlasCore, GoodChoicesAndForeignLibrariesAreLeftAlone) {
  EXPECT_EQ(better_blas_core("SkylakeX", avx512), std::nullopt);
  EXPECT_EQ(better_blas_core("Cooperlake", avx512), std::nullopt);
  EXPECT_EQ(better_blas_core("Zen", avx512), std::nullopt);
  EXPECT_EQ(better_blas_core("haswell", avx2), std::nullopt);
  EXPECT_EQ(better_blas_core("Prescott", neither), std::nullopt);
  EXPECT_EQ(better_blas_core("", avx512), std::nullopt);
}

TEST(BlasCore, ThisProcessRunsTheBestOfItsKernels) {
  EXPECT_TRUE(chosen);
  EXPECT_EQ(better_blas_core(blas_core(), cpu_features()), std::nullopt) << "runs " << blas_core();
}

}  // namespace cpu_environment_test
}  // namespace orrery::exec
