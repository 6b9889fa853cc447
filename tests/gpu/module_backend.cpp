// The backend under test: the CUDA module on a real GPU. Without one the program says why and exits with 77, which
// CTest counts as skipped; what it would run it lists there too (--gtest_list_tests).
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "exec/engine/cuda_loader.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

CudaLoad& loaded() {
  static CudaLoad load = load_cuda({std::filesystem::read_symlink("/proc/self/exe").parent_path().string()});
  return load;
}

}  // namespace

Backend& cuda_backend() {
  static const std::unique_ptr<Backend> backend = loaded().module->make_backend(0, nullptr, {});
  return *backend;
}

int variants() {
  return 2;
}
void choose_variant(int) {}

}  // namespace orrery::exec::gpu_test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  const auto& load = orrery::exec::gpu_test::loaded();
  if (!load.module) {
    std::printf("skipped, no GPU: %s\n", load.reason.c_str());
    return !GTEST_FLAG_GET(list_tests) || RUN_ALL_TESTS() == 0 ? kSkipped : 1;
  }
  std::printf("GPU: %s (%s)\n", load.module->device_name(0).c_str(), load.module->versions().c_str());
  std::fflush(stdout);  // what is printed so far is there also when a test ends the process
  return RUN_ALL_TESTS();
}
