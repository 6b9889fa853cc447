// Dropout, ReLU and what it leaves: operands as models/operators/op.h fixes them.
#include "exec/cuda/dropout.h"
#include "models/encoding.h"
#include "models/operators/dropout.h"

namespace orrery::exec::cuda {

using models::OpKind;

DropoutDraw draw_of(const models::Op& op, const StepContext& context, const std::int64_t* step, std::int64_t begun) {
  DropoutDraw draw;
  draw.step = step;
  draw.ahead = context.sample_step - begun;
  draw.seed = context.seed;
  draw.site = static_cast<std::uint32_t>(op.site);
  draw.first_sequence = static_cast<std::uint32_t>(context.first_sequence);
  draw.threshold = models::dropout_threshold(op.dropout);
  draw.scale = static_cast<float>(models::dropout_scale(op.dropout));
  return draw;
}

RowMasks row_masks(const Call& call) {
  RowMasks masks;
  if (!call.draw.step) return masks;
  ENSURE(call.op.sequence > 0, "{} draws for sequences of no length", models::name_of(call.op.kind));
  masks.draw = call.draw;
  masks.sequence = call.op.sequence;
  masks.first_row = call.op.row_shard ? call.context.tensor_rank * call.op.n : 0;
  masks.positions = {call.op.context, call.context.part};
  return masks;
}

ScoreMasks score_masks(const Call& call) {
  ScoreMasks masks;
  if (!call.draw.step) return masks;
  masks.draw = call.draw;
  masks.queries = {call.op.context, call.context.part};
  masks.owner = (call.context.part - call.op.ring_step + call.op.context) % call.op.context;
  masks.first_head = call.context.tensor_rank * call.op.heads;
  return masks;
}

namespace {

template <class T>
void run_dropped_of(const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  if (call.op.kind == OpKind::add_bias)
    add_dropped(call.stream, row_masks(call), call.input<T>(0, n * m), call.input<T>(1, n * m), call.optional<T>(2, m),
                call.output<T>(0, n * m), n, m);
  else
    drop_rows(call.stream, row_masks(call), call.input<T>(0, n * m), call.output<T>(0, n * m), n, m);
}

template <class T>
void run_rectified_of(const Call& call) {
  const std::int64_t size = call.op.n * call.op.m;
  if (call.op.kind == OpKind::relu)
    relu(call.stream, call.input<T>(0, size), call.output<T>(0, size), size);
  else
    relu_grad(call.stream, call.input<T>(0, size), call.input<T>(1, size), call.output<T>(0, size), size);
}

template <class T>
void run_sparse_of(const Call& call) {
  const models::Op& op = call.op;
  const bool encodes = op.kind == OpKind::sparse_encode;
  const std::int64_t size = op.n * op.m;
  const std::int64_t bytes = models::sparse_bytes(size, op.capacity, models::size_of(op.dtype));
  std::byte* const at = call.checked(!encodes, 0, bytes).data;
  const SparseBytes stored{reinterpret_cast<std::int64_t*>(at),
                           reinterpret_cast<std::uint8_t*>(at + models::kSparseHeader),
                           at + models::kSparseHeader + models::sparse_bits_bytes(size), op.capacity};
  if (encodes) return sparse_encode(call.stream, call.input<T>(0, size), stored, size, call.scratch);
  const bool again = Call::has(call.in, 1);  // what there was no room for can be made again
  ENSURE(again || op.capacity >= size, "what does not fit is not computed again: its operands are absent");
  const T* const none = nullptr;
  sparse_decode(call.stream, stored, again ? call.input<T>(1, op.n * op.k) : none,
                again ? call.input<T>(2, op.m * op.k) : none, call.optional<T>(3, op.m), call.output<T>(0, size), op.n,
                op.m, op.k, op.rounded, call.scratch);
}

}  // namespace

void run_dropped(const Call& call) {
  by_type(call.checked(true, 0, call.op.n * call.op.m).dtype, models::name_of(call.op.kind),
          [&]<class T>(std::type_identity<T>) { run_dropped_of<T>(call); });
}

void run_rectified(const Call& call) {
  by_type(call.checked(true, 0, call.op.n * call.op.m).dtype, models::name_of(call.op.kind),
          [&]<class T>(std::type_identity<T>) { run_rectified_of<T>(call); });
}

void run_sparse(const Call& call) {
  by_type(call.op.dtype, models::name_of(call.op.kind),
          [&]<class T>(std::type_identity<T>) { run_sparse_of<T>(call); });
}

}  // namespace orrery::exec::cuda
