// The backend under test: exec/cuda on the emulated runtime.
#include "exec/cuda/backend.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {

Backend& cuda_backend() {
  static cuda::CudaBackend backend(0, nullptr, {.plan_file = {}, .tune_above_flops = 1e4});
  return backend;
}

int variants() {
  return 3;
}
void choose_variant(int variant) {
  emulation::set_thread_order(static_cast<unsigned>(variant));
}

}  // namespace orrery::exec::gpu_test
