// Latent attention's operators: sizes and operands as models/operators/op.h fixes them.
#include "base/ensure.h"
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/latent.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;

LatentShape latent_shape(const models::Op& op) {
  const LatentShape s{op.n, op.heads, op.head_dim, op.rotary, op.k};
  ENSURE(s.heads > 0 && s.turned % 2 == 0 && s.turned <= s.width && s.value <= s.width,
         "{} heads of {} columns, of which {} turn, and values of {}", s.heads, s.width, s.turned, s.value);
  return s;
}

template <class T>
void run_columns(const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m, k = call.op.k;
  if (call.op.kind == OpKind::split_columns) {
    const T* const x = call.input<T>(0, n * (m + k));
    take_columns(call.stream, x, call.output<T>(0, n * m), n, m + k, 0, m);
    take_columns(call.stream, x, call.output<T>(1, n * k), n, m + k, m, k);
    return;
  }
  T* const x = call.output<T>(0, n * (m + k));
  put_columns(call.stream, call.input<T>(0, n * m), x, n, m + k, 0, m);
  put_columns(call.stream, call.input<T>(1, n * k), x, n, m + k, m, k);
}

template <class T>
void run_values(const Call& call) {
  const LatentShape s = latent_shape(call.op);
  const std::int64_t heads = s.rows * s.heads, wide = heads * s.width, narrow = heads * s.value;
  if (call.op.kind == OpKind::head_values)
    return take_columns(call.stream, call.input<T>(0, wide), call.output<T>(0, narrow), heads, s.width, 0, s.value);
  T* const dy = call.output<T>(0, wide);
  check(cudaMemsetAsync(dy, 0, static_cast<std::size_t>(wide) * sizeof(T), call.stream), "head_values_grad");
  put_columns(call.stream, call.input<T>(0, narrow), dy, heads, s.width, 0, s.value);
}

template <class T>
void run_packs(const Call& call) {
  const LatentShape s = latent_shape(call.op);
  const std::int64_t of_q = s.rows * s.heads * s.width, of_kv = s.rows * s.heads * (s.width - s.turned + s.value);
  const std::int64_t of_key = s.rows * s.turned;
  if (call.op.kind == OpKind::latent_pack)
    latent_pack(call.stream, s, call.input<T>(0, of_q), call.input<T>(1, of_kv), call.input<T>(2, of_key),
                call.output<T>(0, 3 * of_q));
  else
    latent_pack_grad(call.stream, s, call.input<T>(0, 3 * of_q), call.output<T>(0, of_q), call.output<T>(1, of_kv),
                     call.output<T>(2, of_key));
}

}  // namespace

void run_latent(const Call& call) {
  const OpKind kind = call.op.kind;
  by_type(call.checked(true, 0, 0).dtype, models::name_of(kind), [&]<class T>(std::type_identity<T>) {
    if (kind == OpKind::split_columns || kind == OpKind::join_columns) return run_columns<T>(call);
    if (kind == OpKind::head_values || kind == OpKind::head_values_grad) return run_values<T>(call);
    run_packs<T>(call);
  });
}

}  // namespace orrery::exec::cuda
