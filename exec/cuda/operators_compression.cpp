// Operators of compression: operands of any floating type, as models/operators/op.h fixes them.
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/compression.h"
#include "models/encoding.h"

namespace orrery::exec::cuda {

using models::OpKind;

void run_compression(const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t m = op.m;
  if (op.kind == OpKind::convert) return convert(call.stream, call.input_floats(0, m), call.output_floats(0, m), m);
  if (op.kind == OpKind::sum_pieces)
    return sum_pieces(call.stream, call.input_floats(0, op.n * m), call.output_floats(0, m), m, op.n, op.accumulate);
  if (op.kind == OpKind::add_scaled)
    return add_scaled(call.stream, call.input_floats(0, m), call.output_floats(0, m), m, static_cast<float>(op.scale));
  if (op.kind == OpKind::orthogonalise) {
    ENSURE(op.n <= m, "{} orthonormal columns of {} values", op.n, m);
    return orthogonalise(call.stream, call.output(0, m * op.n), m, op.n);
  }
  if (op.kind == OpKind::encode)
    return encode(call.stream, call.input_floats(0, m), call.checked(false, 0, models::encoded_bytes(m, op.k)).data, m,
                  op.k);
  if (op.kind == OpKind::decode)
    return decode(call.stream, call.checked(true, 0, models::encoded_bytes(m, op.k)).data, call.output_floats(0, m), m,
                  op.k);
  throw Failure(fmt::format("{} compresses nothing", models::name_of(op.kind)));
}

}  // namespace orrery::exec::cuda
