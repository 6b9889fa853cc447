// What becomes of sums of rows: operands as models/operators/op.h fixes them.
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec::cuda {
namespace {

using models::DType;
using models::OpKind;

CodedSlots slots_of(const plan::TableLayout& layout, plan::PooledEnd end, plan::PooledType type, int rank) {
  CodedSlots out;
  out.own = rank;
  for (const plan::PooledWay way : plan::kEveryWay) {
    if (!layout.uses(way)) continue;
    const plan::PooledSlots values = layout.slots(end, way, plan::PooledType::fp32);
    const plan::PooledSlots coded = layout.slots(end, way, type);
    CodedSlots::Way& slots = out.ways[static_cast<std::size_t>(way)];
    slots = {values.offset, values.slot, coded.offset, coded.slot, static_cast<std::int32_t>(values.count)};
    if (end == plan::PooledEnd::samples && way != plan::PooledWay::ranks)
      slots.every = way == plan::PooledWay::node ? layout.ranks_per_node : 1;
  }
  return out;
}

void run_codec(const Call& call, const plan::TableLayout& layout, const TableParts& parts) {
  const bool encodes = call.op.kind == OpKind::encode_pooled;
  const Operand& coded = (encodes ? call.out : call.in)[0];
  const plan::PooledEnd end = call.op.row_shard ? plan::PooledEnd::samples : plan::PooledEnd::tables;
  const std::int64_t values = call.op.row_shard ? parts.at_samples : parts.at_tables;
  const auto run = [&]<class T>(plan::PooledType type, std::type_identity<T>, const auto& encode, const auto& decode) {
    const CodedSlots slots = slots_of(layout, end, type, call.context.rank);
    auto* const at = reinterpret_cast<T*>(call.checked(!encodes, 0, layout.pooled_elements(end, type)).data);
    if (encodes)
      encode(call.stream, parts, slots, call.input(0, values), at);
    else
      decode(call.stream, parts, slots, at, call.output(0, values));
  };
  if (coded.dtype == DType::bf16)
    return run(plan::PooledType::bf16, std::type_identity<__nv_bfloat16>(), encode_pooled<__nv_bfloat16>,
               decode_pooled<__nv_bfloat16>);
  if (coded.dtype == DType::fp16)
    return run(plan::PooledType::fp16, std::type_identity<__half>(), encode_pooled<__half>, decode_pooled<__half>);
  if (coded.dtype == DType::uint8)
    return run(plan::PooledType::int8, std::type_identity<std::uint8_t>(), encode_pooled_bytes, decode_pooled_bytes);
  throw Failure(
      fmt::format("the CUDA backend has no {} in {}", models::name_of(call.op.kind), models::name_of(coded.dtype)));
}

void run_pooled(const Call& call, const plan::TableLayout& layout, const TableParts& parts) {
  const std::int64_t n = parts.samples, slots = parts.at_samples;
  const std::int64_t vectors = n * (parts.tables + 1) * parts.dim, local = n * parts.replicated_columns;
  const bool sharded = layout.sharded(), replicated = !layout.replicated.empty();
  if (call.op.kind == OpKind::pooled_join)
    return pooled_join(call.stream, parts, sharded ? call.input(0, slots) : nullptr, call.input(1, n * parts.dim),
                       replicated ? call.input(2, local) : nullptr, call.output(0, vectors));
  pooled_split(call.stream, parts, call.input(0, vectors), sharded ? call.output(0, slots) : nullptr,
               call.output(1, n * parts.dim), replicated ? call.output(2, local) : nullptr);
}

}  // namespace

void CudaBackend::run_recommender(const Call& call) {
  const models::Op& op = call.op;
  const std::int64_t n = op.n, m = op.m;
  const std::int64_t vectors = n * op.k * m, products = n * (m + op.k * (op.k - 1) / 2);
  if (op.kind == OpKind::interaction_dot)
    return interaction_dot(call.stream, call.input(0, vectors), call.output(0, products), n, op.k, m);
  if (op.kind == OpKind::interaction_dot_grad)
    return interaction_dot_grad(call.stream, call.input(0, products), call.input(1, vectors), call.output(0, vectors),
                                n, op.k, m);
  if (op.kind == OpKind::cross)
    return cross(call.stream, call.input(0, n * m), call.input(1, n * m), call.input(2, n * m), call.output(0, n * m),
                 n * m);
  if (op.kind == OpKind::cross_grad)
    return cross_grad(call.stream, call.input(0, n * m), call.input(1, n * m), call.input(2, n * m),
                      call.output(0, n * m), call.output(1, n * m), n * m);
  if (op.kind == OpKind::click_loss)
    return click_loss(call.stream, call.input(0, n), call.input(1, n), call.output(0, 1), n, op.scale);
  if (op.kind == OpKind::click_loss_grad)
    return click_loss_grad(call.stream, call.input(0, n), call.input(1, n), call.output(0, n), n, op.scale);
  ENSURE(call.context.tables != nullptr, "{} without a layout of tables", models::name_of(op.kind));
  const plan::TableLayout& layout = *call.context.tables;
  const TableParts& parts = layouts_.find(layout, call.context.rank, false, call.stream).parts;
  if (op.kind == OpKind::encode_pooled || op.kind == OpKind::decode_pooled) return run_codec(call, layout, parts);
  run_pooled(call, layout, parts);
}

}  // namespace orrery::exec::cuda
