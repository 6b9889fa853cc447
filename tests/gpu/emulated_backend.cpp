// The backend under test: exec/cuda on the emulated runtime.
#include "exec/cuda/backend.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {

Backend& cuda_backend() {
  // Emulated times are nobody's: an epilogue wherever there is one, so that all of them are tested.
  static cuda::CudaBackend backend(0, nullptr,
                                   {.plan_file = {}, .tune_above_flops = 1e4, .epilogues = cuda::EpilogueUse::always});
  return backend;
}

int variants() {
  return 3;
}
void choose_variant(int variant) {
  emulation::set_thread_order(static_cast<unsigned>(variant));
}

}  // namespace orrery::exec::gpu_test
