// Reductions within a chunk's passes, message by message.
#include "cost/estimate/pass_reductions.h"

#include <algorithm>

namespace orrery::cost {

void LateReductions::begin(const LayerCosts& c, const Pass& pass) {
  if (!any_) return;
  costs_ = &c;
  for (const LayerBucket b : kLayerBuckets) last_[static_cast<std::size_t>(b)] = c.whole_behind(pass, b);
}

void LateReductions::behind(std::size_t segment) {
  if (!any_ || buckets_.zero() >= 2) return;
  for (const LayerBucket b : kLayerBuckets)
    if (last_[static_cast<std::size_t>(b)] == static_cast<int>(segment)) reduce(*costs_, b);
}

void LateReductions::accumulated(const LayerCosts& c) {
  if (!any_) return;
  for (const LayerBucket b : kLayerBuckets) reduce(c, b);
}

void LateReductions::reduce(const LayerCosts& c, LayerBucket bucket) {
  const PassSurroundings& around = buckets_.around();
  if (bucket == LayerBucket::shared && c.kind == models::LayerKind::head && around.embeds) return;
  const ReductionTimes* const times = buckets_.reduction(c, bucket, plan::Reduces::in_the_last_pass);
  if (times == nullptr) return;
  TimedReduction r{&times->items};
  if (around.spec.compresses()) return turns_.add(r, times->parts);
  for (int part = 0; part < times->parts; ++part) write_part(out_, r, part);
}

void LayerReductions::reduce(const LayerCosts& c) {
  if (buckets_.around().spec.compresses()) return in_fewer_bits(c);
  of_ = &c;
  for (const LayerBucket bucket : kLayerBuckets) {
    const ReductionTimes* const times = buckets_.reduction(c, bucket, plan::Reduces::in_every_pass);
    if (times == nullptr) continue;
    Reduced r{times};
    for (const TimedItem& item : times->items)
      if (item.is_message)
        r.message = out_.begin(plan::Stream::data, item.lane, item.seconds, item.frees && !c.reduced_beside);
    brought_.push_back(r);
  }
}

void LayerReductions::in_fewer_bits(const LayerCosts& c) {
  for (const LayerBucket bucket : kLayerBuckets)
    if (const ReductionTimes* const times = buckets_.reduction(c, bucket, plan::Reduces::in_every_pass))
      turns_.add({&times->items}, times->parts);
}

void LayerReductions::add_up(LateReductions& late) {
  if (brought_.empty()) return;
  if (buckets_.around().spec.offload.optimizer == plan::Space::device) add_to_shards();  // else the host does
  brought_.clear();
  late.accumulated(*of_);
}

void LayerReductions::add_to_shards() {
  double device = buckets_.around().pricing.compute_time(plan::Step{}).value, host = 0;
  int message = -1;
  for (const Reduced& r : brought_) {
    message = std::max(message, r.message);
    device += r.times->joined;
    host += r.times->joined_host;
  }
  if (message >= 0) out_.wait(plan::Stream::data, message);
  out_.compute(device, host);
}

}  // namespace orrery::cost
