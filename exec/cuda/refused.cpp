// What runs on CPU ranks alone so far: operators whose row says so (RunBy), and attention with sinks or with values
// that are narrower or wider than keys.
#include <fmt/core.h>

#include "exec/cuda/call.h"
#include "exec/failure.h"

namespace orrery::exec::cuda {

void refuse_on_cuda(const models::Op& op) {
  throw Failure(fmt::format("the CUDA backend has no {} yet: such models run on CPU ranks", models::name_of(op.kind)),
                FailureKind::environment);
}

// With sinks these operators have one operand more.
void refuse_attention(const models::Op& op) {
  const bool backward = op.kind == models::OpKind::attention_grad || op.kind == models::OpKind::ring_attention_grad;
  const bool ring = op.kind == models::OpKind::ring_attention || op.kind == models::OpKind::ring_attention_grad;
  if (op.in.size() > (backward ? 4U : 1U) + (ring ? 1U : 0U))
    throw Failure("the CUDA backend's attention has no sinks yet: models with attention_sinks run on CPU ranks",
                  FailureKind::environment);
  if (op.value_dim > 0)
    throw Failure(
        "the CUDA backend's attention has no values of a width of their own yet: models with value_dim run on CPU "
        "ranks",
        FailureKind::environment);
}

void refuse_value_norms(const models::Op& op) {
  if (op.values != models::HeadValues::kept)
    throw Failure("the CUDA backend has no norms of values yet: models with value_norm run on CPU ranks",
                  FailureKind::environment);
}

}  // namespace orrery::exec::cuda
