// BERT's own operators: operands as models/operators/op.h fixes them.
#include "exec/cuda/call.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;

ChosenRows chosen_rows(const Call& call) {
  const models::Op& op = call.op;
  return {Call::has(call.in, 1) ? call.ids(1, op.n) : nullptr, op.n, op.sequence, op.batch * op.sequence,
          op.row_shard ? call.context.tensor_rank * op.k : 0,  op.k};
}

template <class T>
void run(const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, m = op.m, size = n * m;
  const OpKind kind = op.kind;
  if (kind == OpKind::type_add) {
    const std::int64_t first = op.row_shard ? call.context.tensor_rank * n : 0;
    return type_add(call.stream, call.ids(2, first + n) + first, call.input<T>(0, size), call.input<T>(1, op.k * m),
                    call.output<T>(0, size), n, m, op.k);
  }
  if (kind == OpKind::type_grad)
    return type_grad<T>(call.stream, call.ids(1, n), call.input<T>(0, size), call.output<GradientOf<T>>(0, op.k * m), n,
                        m, op.k, call.scratch);
  if (kind == OpKind::gather_rows)
    return gather_rows(call.stream, chosen_rows(call), call.input<T>(0, op.k * m), call.output<T>(0, size), m);
  if (kind == OpKind::scatter_rows)
    return scatter_rows(call.stream, chosen_rows(call), call.input<T>(0, size), call.output<T>(0, op.k * m), m,
                        op.accumulate);
  if (kind == OpKind::tanh) return tanh_of(call.stream, call.input<T>(0, size), call.output<T>(0, size), size);
  if (kind == OpKind::tanh_grad)
    return tanh_grad(call.stream, call.input<T>(0, size), call.input<T>(1, size), call.output<T>(0, size), size);
  if (kind == OpKind::gelu_erf) return gelu_erf(call.stream, call.input<T>(0, size), call.output<T>(0, size), size);
  if (kind == OpKind::gelu_erf_grad)
    return gelu_erf_grad(call.stream, call.input<T>(0, size), call.input<T>(1, size), call.output<T>(0, size), size);
  if (kind == OpKind::class_loss)
    return class_loss(call.stream, call.input<T>(0, size), call.ids(1, n), call.output(0, 1), n, m, op.scale);
  if (kind == OpKind::class_loss_grad)
    return class_loss_grad(call.stream, call.input<T>(0, size), call.ids(1, n), call.optional(2, 1),
                           call.output<T>(0, size), n, m, op.scale);
  throw Failure(fmt::format("{} is not BERT's", models::name_of(kind)));
}

}  // namespace

void run_masked(const Call& call) {
  by_type(call.checked(true, 0, 1).dtype, models::name_of(call.op.kind),
          [&]<class T>(std::type_identity<T>) { run<T>(call); });
}

}  // namespace orrery::exec::cuda
