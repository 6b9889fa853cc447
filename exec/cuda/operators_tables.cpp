// Rows of embedding tables: operands as models/operators/op.h fixes them, parts as plan/spec/table_layout.h does.
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;
using plan::TableLayout;

std::int32_t* words(const Call& call, std::size_t index, std::int64_t elements) {
  const Operand& out = call.checked(false, index, elements);
  ENSURE(out.dtype == models::DType::int32, "output {} of {} in {}", index, models::name_of(call.op.kind),
         models::name_of(out.dtype));
  return reinterpret_cast<std::int32_t*>(out.data);
}

/// What bags are made of, as they were received.
struct Bags {
  const std::int32_t* lengths;
  const std::int32_t* values;
  Bags(const Call& call, const TableParts& parts)
      : lengths(call.ids(0, parts.bags())), values(call.ids(1, parts.lookups() * parts.words)) {}
};

void run_bucketise(const Call& call, const TableLayouts::Found& tables) {
  const TableParts& parts = tables.parts;
  bucketise_indices(call.stream, parts, call.ids(0, parts.samples * parts.indices * parts.words),
                    words(call, 0, parts.bags()), words(call, 1, parts.lookups() * parts.words), tables.room);
  // Four outputs have counts by rank; a fifth has counts by node, if anything travels between nodes.
  const std::int32_t* from = parts.counts;
  for (std::size_t i = 2; i < call.out.size(); ++i) {
    const std::int64_t count = i < 6 ? parts.ranks : 4 * parts.nodes;
    check(cudaMemcpyAsync(words(call, i, count), from, static_cast<std::size_t>(count) * sizeof(std::int32_t),
                          cudaMemcpyDeviceToDevice, call.stream),
          "bucketise_indices");
    from += count;
  }
}

/// A row's update in tables with this many values and rows.
RowStep row_step(const Call& call, const StepValues* now, std::int64_t values, std::int64_t rows) {
  const StepContext& c = call.context;
  RowStep out;
  out.rule = call.op.rule;
  out.step.now = now;
  out.step.beta1 = c.beta1;
  out.step.beta2 = c.beta2;
  out.step.epsilon = c.epsilon;
  out.values = call.output(0, values);
  out.states = call.optional_output(1, out.rule == models::UpdateRule::adam ? 2 * values : rows);
  ENSURE(out.states != nullptr || out.rule == models::UpdateRule::sgd, "{} without states",
         models::name_of(call.op.kind));
  out.second = values;
  out.width = c.tables->embedding_dim;
  return out;
}

void run_lookup_grad(const Call& call, const TableLayouts::Found& tables) {
  const TableParts& parts = tables.parts;
  const std::int64_t elements = call.out[0].elements;  // padding too: it is summed over ranks
  float* const gradients = call.output(0, elements);
  float* const counts = call.optional_output(1, parts.replicated_rows);
  const auto clear = [&](float* to, std::int64_t count) {
    check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(count) * sizeof(float), call.stream),
          "embedding_lookup_grad");
  };
  clear(gradients, elements);
  if (counts) clear(counts, parts.replicated_rows);
  merged_gradients(call.stream,
                   merge_lookups(call.stream, parts, call.ids(0, parts.samples * parts.indices * parts.words),
                                 call.input(1, parts.samples * parts.replicated_columns), tables.room),
                   gradients, counts);
}

}  // namespace

void refuse_tiers(const models::Op& op) {
  throw Failure(fmt::format("the CUDA backend has no {} yet: tables outside the device's memory (embedding.tiers) are "
                            "executed on CPU ranks",
                            models::name_of(op.kind)),
                FailureKind::environment);
}

void CudaBackend::run_tables(const Call& call) {
  ENSURE(call.context.tables != nullptr, "{} without a layout of tables", models::name_of(call.op.kind));
  const TableLayout& layout = *call.context.tables;
  if (layout.cached()) refuse_tiers(call.op);
  const OpKind kind = call.op.kind;
  const bool merges = kind == OpKind::embedding_bag_squares || kind == OpKind::embedding_bag_update ||
                      kind == OpKind::embedding_lookup_grad;
  const TableLayouts::Found& tables = layouts_.find(layout, call.context.rank, merges, call.stream);
  const TableParts& parts = tables.parts;
  const auto merged = [&] {
    const Bags bags(call, parts);
    return merge_bags(call.stream, parts, bags.lengths, bags.values, call.input(2, parts.at_tables), tables.room);
  };
  if (kind == OpKind::bucketise_indices) return run_bucketise(call, tables);
  if (kind == OpKind::embedding_lookup)
    return embedding_lookup(call.stream, parts, call.ids(0, parts.samples * parts.indices * parts.words),
                            call.input(1, layout.replicated_elements),
                            call.output(0, parts.samples * parts.replicated_columns));
  if (kind == OpKind::embedding_lookup_grad) return run_lookup_grad(call, tables);
  if (kind == OpKind::table_update) {
    const std::int64_t rows = layout.replicated_rows, values = rows * layout.embedding_dim;
    return table_update(call.stream, call.input(0, values), call.optional(1, rows), rows, layout.embedding_dim,
                        row_step(call, step_values(call), values, rows));
  }
  if (kind == OpKind::embedding_bag_squares) {
    float* const squares = call.output(0, layout.squares);
    check(cudaMemsetAsync(squares, 0, static_cast<std::size_t>(layout.squares) * sizeof(float), call.stream),
          "embedding_bag_squares");
    if (parts.own_count > 0) merged_squares(call.stream, merged(), squares);
    return;
  }
  if (parts.own_count == 0) return;
  if (kind == OpKind::embedding_bag) {
    const Bags bags(call, parts);
    return embedding_bag(call.stream, parts, bags.lengths, bags.values, call.input(2, layout.most_elements),
                         call.output(0, parts.at_tables), tables.room);
  }
  ENSURE(kind == OpKind::embedding_bag_update, "{} is none of tables'", models::name_of(kind));
  RowStep step = row_step(call, step_values(call), layout.most_elements, layout.most_rows);
  step.whole_squares = call.optional(3, layout.squares);
  float* const total = call.output(2, 1);
  merged_update(call.stream, merged(), step, total, tables.room);
}

}  // namespace orrery::exec::cuda
