// ZeRO's gathers, zeroing and reductions of a chunk's layers.
#include "cost/estimate/chunk_buckets.h"

#include <algorithm>
#include <utility>

namespace orrery::cost {

void Gathered::wait(PassWriter& out, const Segment& s) {
  for (std::size_t b = 0; b < last.size(); ++b)
    if (s.reads_parameters[b].any() && last[b] >= 0) out.wait(plan::Stream::data, std::exchange(last[b], -1));
}

ChunkBuckets::ChunkBuckets(const std::vector<LayerRun>& layers, const PassSurroundings& around) : around_(around) {
  constexpr std::size_t kKindsOfLayers = 8;  // usually fewer
  kept_.reserve(kKindsOfLayers);
  for (const LayerRun& run : layers) keep(*run.costs);
}

void ChunkBuckets::keep(const LayerCosts& c) {
  if (std::any_of(kept_.begin(), kept_.end(), [&](const OfLayer& one) { return one.costs == &c; })) return;
  OfLayer& one = kept_.emplace_back();
  one.costs = &c;
  for (const LayerBucket bucket : kLayerBuckets) {
    const auto at = static_cast<std::size_t>(bucket);
    if (c.in(bucket).frozen > 0) one.frozen[at] = frozen_shape_of(bucket, c, around_.spec);
    if (c.in(bucket).elements > 0) one.trained[at] = shape_of(bucket, c, around_.spec);
  }
}

ChunkBuckets::OfLayer& ChunkBuckets::of(const LayerCosts& c) {
  return *std::find_if(kept_.begin(), kept_.end(), [&](const OfLayer& one) { return one.costs == &c; });
}

const ReductionTimes& ChunkBuckets::known(const plan::BucketShape& b, plan::Reduces when,
                                          const ReductionTimes*& times) {
  if (!times) times = &around_.ends.reduction(b, around_.spec, when, around_.groups, room_);
  return *times;
}

int ChunkBuckets::zero() const {
  return zero_of(around_.spec);
}

bool ChunkBuckets::first_writes() const {
  const plan::PlanSpec& spec = around_.spec;
  if (around_.pricing.stack().zero_gradients || zero() >= 2 || spec.stages.asynchronous() || spec.states.has_server() ||
      spec.offload.optimizer != plan::Space::device)
    return false;
  return std::ranges::any_of(kept_, [&](const OfLayer& one) {
    const auto differs = [&](const Segment& s) { return s.writing(first_written(*one.costs)) != s.seconds; };
    return std::ranges::any_of(one.costs->backward.segments, differs) ||
           std::ranges::any_of(one.costs->weights.segments, differs);
  });
}

std::array<bool, 3> ChunkBuckets::first_written(const LayerCosts& c) const {
  std::array<bool, 3> out = {};
  for (const LayerBucket bucket : kLayerBuckets) out[static_cast<std::size_t>(bucket)] = c.in(bucket).written;
  if (around_.spec.stages.splits_backward() && around_.embeds)
    out[static_cast<std::size_t>(LayerBucket::shared)] = false;
  return out;
}

Gathered ChunkBuckets::gather(PassWriter& out, const LayerCosts& c, std::initializer_list<const Segments*> reads) {
  Gathered gathered;
  if (zero() < 3) return gathered;
  OfLayer& buckets = of(c);
  for (const LayerBucket bucket : kLayerBuckets)
    for (const bool frozen : {false, true}) {
      const auto at = static_cast<std::size_t>(bucket);
      const auto& b = (frozen ? buckets.frozen : buckets.trained)[at];
      if (!b) continue;
      const ReductionTimes*& times = (frozen ? buckets.in_frozen : buckets.in_pass)[at];
      const double time = known(*b, plan::Reduces::in_every_pass, times).gather;
      if (time <= 0) continue;
      const bool read = std::ranges::any_of(reads, [at](const Segments* segments) {
        return std::ranges::any_of(*segments, [at](const Segment& s) { return s.reads_parameters[at].any(); });
      });
      gathered.last[at] = out.begin(plan::Stream::data, lane_of(plan::Over::data, b->experts), time, !read);
    }
  return gathered;
}

Zeroing ChunkBuckets::zeroed(const LayerCosts& c) {
  Zeroing out;
  if (zero() < 2) return out;
  const Pricing& pricing = around_.pricing;
  for (const LayerBucket bucket : kLayerBuckets) {
    const auto& b = of(c).trained[static_cast<std::size_t>(bucket)];
    if (!b) continue;
    models::Op op = plan::zeroed_in_pass(*b, around_.spec).items.front().ops.front();
    op.m = pricing.stack().zero_gradients ? b->elements : c.zeroed_by_pass(bucket, b->elements);
    out.writes[static_cast<std::size_t>(bucket)] = op.m < b->elements;
    if (op.m == 0) continue;
    out.any = true;
    out.device += pricing.op_time(op).value;
    out.host += pricing.host_time({&op, 1}).value;
  }
  return out;
}

const ReductionTimes* ChunkBuckets::reduction(const LayerCosts& c, LayerBucket bucket, plan::Reduces when) {
  OfLayer& buckets = of(c);
  const auto at = static_cast<std::size_t>(bucket);
  if (!buckets.trained[at]) return nullptr;
  return &known(*buckets.trained[at], when,
                (when == plan::Reduces::in_the_last_pass ? buckets.late : buckets.in_pass)[at]);
}

}  // namespace orrery::cost
