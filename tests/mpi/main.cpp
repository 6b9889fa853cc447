// Threads and workers multiply with the same kernels: the worker replaces those that OpenBLAS chooses on a CPU newer
// than itself, and results would otherwise differ by their rounding.
#include <gtest/gtest.h>

#include "exec/cpu/blas_core.h"

int main(int argc, char** argv) {
  orrery::exec::execute_again_with_better_blas_core(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
