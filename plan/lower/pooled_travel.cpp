// The messages of pooled vectors in each way, and the conversions to and from fewer bits before and after them.
#include "plan/lower/pooled_travel.h"

#include "plan/lower/recommender_ranges.h"
#include "plan/lower/table_locality.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

constexpr std::int64_t kCounts = 4;  // forward sent, forward received, backward sent, backward received

PooledEnd start_of(Phase phase) {
  return phase == Phase::forward ? PooledEnd::tables : PooledEnd::samples;
}
PooledEnd goal_of(Phase phase) {
  return phase == Phase::forward ? PooledEnd::samples : PooledEnd::tables;
}

}  // namespace

TableGroups add_table_groups(base::ById<GroupId, Group>& groups, const TableLayout& layout) {
  TableGroups out;
  if (layout.ranks == 1) return out;
  const auto add = [&](const char* name, int stride, int size) {
    return groups.append({.name = name, .dimensions = {{.stride = stride, .size = size}}});
  };
  out.all = add("tables", 1, layout.ranks);
  if (!layout.uses(PooledWay::node)) return out;
  out.node = add("tables_node", 1, layout.ranks_per_node);
  out.places = add("tables_nodes", layout.ranks_per_node, layout.nodes());
  return out;
}

PooledTravel::PooledTravel(ClassBuilder& build, const TableLayout& layout, const TableGroups& groups,
                           models::DType computed)
    : build_(build), layout_(layout), groups_(groups), computed_(computed) {}

BufferId PooledTravel::values(const char* name, Phase phase) {
  return build_.buffer(name, Purpose::activations, native(type_of(phase)) ? computed_ : DType::fp32,
                       layout_.pooled_elements(start_of(phase), PooledType::fp32));
}

std::vector<int> PooledTravel::counts() {
  const std::int64_t ranks = layout_.ranks, nodes = layout_.uses(PooledWay::node) ? layout_.nodes() : 0;
  counts_ = build_.buffer("pooled.counts", Purpose::communication, DType::int32, kCounts * (ranks + nodes));
  std::vector<int> out;
  for (std::int64_t i = 0; i < kCounts; ++i) out.push_back(build_.view({counts_, i * ranks, ranks}));
  if (nodes > 0) out.push_back(build_.view({counts_, kCounts * ranks, kCounts * nodes}));
  return out;
}

Op PooledTravel::codec(OpKind kind, PooledType type, PooledEnd end, BufferId from, BufferId to) {
  Op op = op_of(kind, layout_.samples, layout_.pooled_elements(end, PooledType::fp32), models::size_of(dtype_of(type)),
                {view(from)}, {view(to)});
  op.row_shard = end == PooledEnd::samples;
  op.expected = mean_share(layout_, end, PooledType::fp32);
  return op;
}

BufferId PooledTravel::encoded(Phase phase, BufferId values, std::vector<Op>& ops) {
  const PooledType type = type_of(phase);
  if (!encodes(type)) return values;
  const PooledEnd end = start_of(phase);
  const BufferId sent = build_.buffer(phase == Phase::forward ? "pooled.sent" : "gradients.sent",
                                      Purpose::communication, dtype_of(type), layout_.pooled_elements(end, type));
  ops.push_back(codec(OpKind::encode_pooled, type, end, values, sent));
  return sent;
}

BufferId PooledTravel::decoded(Phase phase, BufferId received, std::vector<Op>& ops) {
  const PooledType type = type_of(phase);
  if (!received || !encodes(type)) return received;
  const PooledEnd end = goal_of(phase);
  const BufferId values =
      build_.buffer(phase == Phase::forward ? "pooled.decoded" : "gradients.decoded", Purpose::activations, DType::fp32,
                    layout_.pooled_elements(end, PooledType::fp32));
  ops.push_back(codec(OpKind::decode_pooled, type, end, received, values));
  return values;
}

BufferId PooledTravel::send(Phase phase, BufferId buffer, std::vector<BufferId>& sent) {
  if (layout_.ranks == 1) return buffer;
  const PooledType type = type_of(phase);
  const BufferId to =
      build_.buffer(phase == Phase::forward ? "pooled.received" : "gradients.received", Purpose::communication,
                    dtype_of(type), layout_.pooled_elements(goal_of(phase), type), lasts_);
  sent.push_back(buffer);
  const auto slots = [&](BufferId of, PooledEnd end) { return slots_at(of, phase, end, PooledWay::exchange); };
  if (layout_.uses(PooledWay::exchange))
    exchange(phase, PooledWay::exchange, slots(buffer, start_of(phase)), slots(to, goal_of(phase)));
  if (layout_.uses(PooledWay::ranks)) by_ranks(phase, buffer, to);
  if (layout_.uses(PooledWay::node)) by_nodes(phase, buffer, to, sent);
  sent.push_back(counts_);
  return to;
}

View PooledTravel::slots_at(BufferId buffer, Phase phase, PooledEnd end, PooledWay way) const {
  const PooledSlots slots = layout_.slots(end, way, type_of(phase));
  return {buffer, slots.offset, slots.elements()};
}

void PooledTravel::exchange(Phase phase, PooledWay way, View from, View to) {
  const bool nodes = way == PooledWay::node;
  const PooledType type = type_of(phase);
  CountedRows counted;
  if (!alike(layout_, way, type)) {
    const std::int64_t members = nodes ? layout_.nodes() : layout_.ranks;
    const auto view = [&](std::int64_t i) {
      return build_.view({counts_, (nodes ? kCounts * layout_.ranks : 0) + i * members, members});
    };
    const std::int64_t first = phase == Phase::forward ? 0 : 2;
    counted = {view(first), view(first + 1), 1, mean_slot_share(layout_, way, type)};
  }
  build_.exchange(phase, stream_, nodes ? groups_.places : groups_.all, from, to, {}, counted);
}

void PooledTravel::by_ranks(Phase phase, BufferId from, BufferId to) {
  build_.collective(phase, Stream::exchange,
                    phase == Phase::forward ? CollectiveKind::reduce_scatter : CollectiveKind::all_gather, groups_.all,
                    slots_at(from, phase, start_of(phase), PooledWay::ranks),
                    slots_at(to, phase, goal_of(phase), PooledWay::ranks));
}

// Between the two messages a rank has sums, or gradients, of its own node's columns for all ranks of its place.
void PooledTravel::by_nodes(Phase phase, BufferId from, BufferId to, std::vector<BufferId>& sent) {
  const bool forward = phase == Phase::forward;
  const View far = slots_at(to, phase, goal_of(phase), PooledWay::node);
  const View near = slots_at(from, phase, start_of(phase), PooledWay::node);
  const BufferId between = build_.buffer(forward ? "pooled.of_place" : "gradients.of_place", Purpose::communication,
                                         dtype_of(type_of(phase)), (forward ? far : near).elements);
  sent.push_back(between);
  const View whole = build_.whole(between);
  if (!forward) exchange(phase, PooledWay::node, near, whole);
  build_.collective(phase, Stream::exchange, forward ? CollectiveKind::reduce_scatter : CollectiveKind::all_gather,
                    groups_.node, forward ? near : whole, forward ? whole : far);
  if (forward) exchange(phase, PooledWay::node, whole, far);
}

}  // namespace orrery::plan
