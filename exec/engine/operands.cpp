// Views as addresses, and the runs of elements that optimizers treat differently.
#include "exec/engine/operands.h"

#include <optional>

#include "base/ensure.h"
#include "models/operators/operators.h"
#include "plan/schedule/waits.h"

namespace orrery::exec {
namespace {

// Operators that treat a bucket's elements by parameter, and how finely.
std::optional<RangeGrain> grain_of(const models::Op& op) {
  if (op.stochastic) return RangeGrain::run;
  switch (models::traits_of(op).ranges) {
    case models::Ranges::none: return std::nullopt;
    case models::Ranges::treatment: return RangeGrain::treatment;
    case models::Ranges::parameter: return RangeGrain::parameter;
  }
  return std::nullopt;
}

}  // namespace

Operands::Operands(const plan::Schedule& schedule, const plan::RankClass& rank_class, Arena& arena, int rank)
    : schedule_(schedule), class_(rank_class), arena_(arena), rank_(rank) {
  for (std::size_t i = 0; i < places_.size(); ++i)
    places_.at(i) = plan::place_in(static_cast<plan::DealtOver>(i), schedule.spec, rank);
}

std::byte* Operands::address(const plan::View& view, const Instance& of) const {
  const plan::Buffer& buffer = class_.buffers[view.buffer];
  return arena_.data(view.buffer, of) + element_offset(view) * models::size_of(buffer.dtype);
}

Operand Operands::at(int view, const Instance& of) const {
  if (view < 0) return {};
  const plan::View& v = view_at(view);
  return {address(v, of), v.elements, class_.buffers[v.buffer].dtype};
}

std::vector<Touch> Operands::touches(const plan::Step& step, const Instance& of) const {
  return plan::uses_of(step, [&](plan::BufferId buffer, bool writes) { return touch(buffer, of, writes); });
}

std::span<const ElementRange> Operands::ranges(const models::Op& op) {
  const auto grain = grain_of(op);
  if (!grain) return {};
  const auto found = ranges_.find(op.in.front());
  if (found != ranges_.end()) return found->second;
  return ranges_[op.in.front()] = ranges_of(op, *grain);
}

std::vector<ElementRange> Operands::ranges_of(const models::Op& op, RangeGrain grain) const {
  const plan::View& view = view_at(op.in.front());  // a view of its own: the gradient, or LAMB's first moment
  for (const plan::Bucket& bucket : class_.buckets) {
    const plan::Holders holders = schedule_.spec.holders(bucket.experts);
    const int ways = holders.ways, part = holders.part(rank_);
    if (view.buffer == bucket.received)
      return element_ranges(bucket, shard_offset(bucket), view.elements, ways, part, grain);
    if (view.buffer != bucket.gradients && view.buffer != bucket.gradient_shard && view.buffer != bucket.first_moment)
      continue;
    const bool of_shard = class_.buffers[view.buffer].elements != bucket.elements;
    const std::int64_t begin = element_offset(view) + (of_shard ? shard_offset(bucket) : 0);
    return element_ranges(bucket, begin, view.elements, ways, part, grain);
  }
  ENSURE(false, "{} works on no bucket's gradients", models::name_of(op.kind));
}

}  // namespace orrery::exec
