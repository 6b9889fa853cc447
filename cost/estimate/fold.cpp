// Sums over the items of outlines.
#include "cost/estimate/fold.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "plan/outline/reduction.h"
#include "plan/outline/turns.h"
#include "plan/outline/update.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

using plan::Memory;
using plan::Outline;
using plan::Over;

RankClock::Overlaps overlaps_of(const Pricing& pricing) {
  RankClock::Overlaps out{};
  for (std::size_t s = 0; s < out.size(); ++s) out[s] = pricing.overlaps(static_cast<plan::Stream>(s));
  return out;
}

double arena_bytes(std::int64_t elements, models::DType dtype) {
  const std::int64_t bytes = elements * models::size_of(dtype);
  return static_cast<double>((bytes + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment);
}

double Fold::time(const Outline& outline, const plan::Item& item) const {
  if (!item.is_message()) return pricing_.compute_time(item.ops).value;
  const base::Bytes bytes = pricing_.as_reduced(base::Bytes{static_cast<double>(outline.message_bytes(item))},
                                                item.phase, outline.slot_of(item.source).dtype, groups_.precision);
  return groups_.lockstep.at(pricing_)
      .collective_time(item.kind, bytes, groups_.of(item.experts).over(item.over), plan::Stream::data)
      .value;
}

FoldTimes Fold::times(const Outline& outline) const {
  FoldTimes sum;
  for (const plan::Item& item : outline.items)
    (!item.is_message()          ? sum.compute
     : item.over == Over::tensor ? sum.over_tensor
                                 : sum.messages) += time(outline, item);
  return sum;
}

namespace {

bool uses_slot(const Outline& outline, const plan::Item& item, int slot) {
  const auto of_slot = [&](int operand) {
    return operand >= 0 && outline.operands[static_cast<std::size_t>(operand)].slot == slot;
  };
  return of_slot(item.source) || of_slot(item.target) || std::ranges::any_of(item.ops, [&](const models::Op& op) {
           return std::ranges::any_of(op.in, of_slot) || std::ranges::any_of(op.out, of_slot);
         });
}

/// The last message before a compute item that uses memory which the item uses, too; -1: none.
int last_message(const Outline& outline, std::size_t compute) {
  const auto slot = [&](int operand) {
    return operand < 0 ? -1 : outline.operands[static_cast<std::size_t>(operand)].slot;
  };
  const auto uses = [&](int operand) {
    return operand >= 0 && uses_slot(outline, outline.items[compute], slot(operand));
  };
  for (std::size_t i = compute; i-- > 0;)
    if (const plan::Item& item = outline.items[i]; item.is_message() && (uses(item.source) || uses(item.target)))
      return static_cast<int>(i);
  return -1;
}

/// Whether the buffer that a message sends dies with it.
bool frees_source(const Outline& outline, std::size_t message, bool transient) {
  const plan::Item& item = outline.items[message];
  const int slot = outline.operands[static_cast<std::size_t>(item.source)].slot;
  const Memory memory = outline.slot_of(item.source).memory;
  if (memory != Memory::temporary && !(transient && memory == Memory::gradients)) return false;
  if (item.target >= 0 && outline.operands[static_cast<std::size_t>(item.target)].slot == slot) return false;
  return std::none_of(outline.items.begin() + static_cast<std::ptrdiff_t>(message) + 1, outline.items.end(),
                      [&](const plan::Item& later) { return uses_slot(outline, later, slot); });
}

}  // namespace

std::vector<TimedItem> Fold::items(const Outline& outline, bool transient) const {
  std::vector<TimedItem> out;
  for (std::size_t i = 0; i < outline.items.size(); ++i) {
    const plan::Item& item = outline.items[i];
    TimedItem& one = out.emplace_back(TimedItem{item.part, item.is_message()});
    one.seconds = time(outline, item);
    if (one.is_message)
      one.lane = lane_of(item.over, item.experts), one.frees = frees_source(outline, i, transient);
    else
      one.host = pricing_.host_time(item.ops).value, one.awaits = last_message(outline, i);
  }
  return out;
}

double Fold::joined(const Outline& outline) const {
  double sum = 0;
  for (const plan::Item& item : outline.items)
    for (const models::Op& op : item.ops) sum += pricing_.op_time(op).value;
  return sum;
}

double state_bytes(const BucketSize& bucket, const plan::PlanSpec& spec, double moment_bytes) {
  constexpr double kMoments = 2 * sizeof(float);
  double sum = 0;
  for (const Memory memory : plan::kStates) {
    const plan::Slot state = plan::state_of(memory, bucket, spec);
    const bool moment = memory == Memory::first_moment || memory == Memory::second_moment;
    // A framework may keep Adam's in other types.
    const bool adams =
        moment && spec.states.moments() > 1 && state.dtype == models::DType::fp32 && bucket.whole == nullptr;
    sum += arena_bytes(state.elements, state.dtype) * (adams ? moment_bytes / kMoments : 1);
  }
  return sum;
}

namespace {

plan::StageTotals totals_of(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  plan::StageTotals totals;
  for (const BucketSize& b : buckets) add_to(totals, b, spec, b.count);
  return totals;
}

}  // namespace

double factor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  return arena_bytes(totals_of(buckets, spec).all.factors.elements, models::DType::fp32);
}

namespace {

/// With more equal buckets in a row than this, the peak does not grow.
std::int64_t distinct(int parts) {
  return parts == 1 ? 1 : parts + 1;
}

}  // namespace

namespace {

/// Equal layers, whose buckets follow one another layer by layer: for each layer, its first bucket and the one after
/// its last.
std::vector<std::pair<std::size_t, std::size_t>> layers_of(const std::vector<BucketSize>& buckets) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t i = 0; i < buckets.size(); ++i)
    if (i > 0 && buckets[i].experts && !buckets[i - 1].experts && buckets[i].count == buckets[i - 1].count)
      out.back().second = i + 1;
    else
      out.emplace_back(i, i + 1);
  return out;
}

}  // namespace

ScratchBytes reduction_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  ScratchBytes most;
  if (spec.reduces_early() || !plan::reductions_need_memory(spec)) return most;
  for (const bool low_rank : {false, true}) {
    if (low_rank ? !spec.low_rank() : spec.low_rank() && spec.plain_steps() == 0) continue;
    BlockLives block;
    ReductionLives reductions(block);
    std::vector<Outline> outlines;
    outlines.reserve(buckets.size());
    for (const BucketSize& b : buckets)
      outlines.push_back(plan::reduction_of(b, spec, plan::Reduces::at_the_end, low_rank));
    for (const auto& [first, end] : layers_of(buckets))
      for (std::int64_t k = 0; k < std::min<std::int64_t>(buckets[first].count, distinct(outlines[first].parts)); ++k)
        for (std::size_t i = first; i < end; ++i) reductions.add_in_turn(outlines[i]);
    reductions.finish();
    most = larger(most, scratch_bytes({block.take()}));
  }
  return most;
}

ScratchBytes update_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  if (!plan::updates_need_memory(spec)) return {};
  constexpr std::int64_t kDistinct = 2;
  const plan::StageTotals totals = totals_of(buckets, spec);
  BlockLives block;
  LivesByMemory of_stage = none_of_memory();
  for (const Memory memory : plan::kStageTemporaries) of_stage[static_cast<std::size_t>(memory)] = block.buffer(0);
  const auto run = [&](Outline outline) { block.use(block.outlined(std::move(outline), of_stage), 0); };
  for (int round = 0; round < plan::update_rounds(spec); ++round) {
    bool first = true;
    for (const BucketSize& b : buckets)
      for (std::int64_t k = 0; k < std::min(b.count, kDistinct); ++k)
        run(plan::update_of(b, totals, spec, round, std::exchange(first, false)));
    run(plan::agreement_of(totals, spec, round));
  }
  return scratch_bytes({block.take()});
}

}  // namespace orrery::cost
