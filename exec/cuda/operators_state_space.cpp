// State spaces and gated delta networks, which CPU ranks alone have so far.
#include <fmt/core.h>

#include "exec/cuda/call.h"
#include "exec/failure.h"

namespace orrery::exec::cuda {

void refuse_state_space(const models::Op& op) {
  throw Failure(
      fmt::format("the CUDA backend has no {} yet: models with state spaces or gated delta networks run on CPU ranks",
                  models::name_of(op.kind)),
      FailureKind::environment);
}

}  // namespace orrery::exec::cuda
