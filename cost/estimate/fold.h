#pragma once
/// Prices and memory of outlines (plan/outline/): what happens to a stage's buckets, without lowering it.
#include <cstdint>
#include <vector>

#include "cost/estimate/block_lives.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_groups.h"
#include "cost/prices/pricing.h"
#include "plan/outline/outline.h"

namespace orrery::cost {

/// Seconds of a bucket's items.
struct FoldTimes {
  double over_tensor = 0;  ///< messages of the tensor group
  double messages = 0;     ///< all others
  double compute = 0;      ///< including the overhead of each step
};

/// An item of an outline as a rank's clock runs it.
struct TimedItem {
  int part = 0;
  bool is_message = false;
  bool frees = false;                       ///< a message; nothing uses the memory that it has sent afterwards
  Lane lane = lane_of(plan::Stream::data);  ///< of a message
  double seconds = 0;
  double host = 0;  ///< seconds of the host to issue it
  int awaits = -1;  ///< compute: the number of the last item before it that is a message and uses the same memory
};

class Fold {
 public:
  Fold(const Pricing& pricing, const StageGroups& groups) : pricing_(pricing), groups_(groups) {}

  [[nodiscard]] double time(const plan::Outline& outline, const plan::Item& item) const;
  [[nodiscard]] FoldTimes times(const plan::Outline& outline) const;
  /// Every item. `transient`: full gradients live for one pass alone.
  [[nodiscard]] std::vector<TimedItem> items(const plan::Outline& outline, bool transient) const;
  /// Seconds of the operators alone, for a step that they share with other buckets or operators.
  [[nodiscard]] double joined(const plan::Outline& outline) const;

 private:
  const Pricing& pricing_;
  const StageGroups& groups_;
};

/// Which messages move while a rank computes.
[[nodiscard]] RankClock::Overlaps overlaps_of(const Pricing& pricing);

/// Bytes that a buffer takes in the arena.
[[nodiscard]] double arena_bytes(std::int64_t elements, models::DType dtype);

/// Bytes of one bucket's states, masters and moments, and of PowerSGD's. `moment_bytes`: both of Adam's moments, per
/// parameter.
[[nodiscard]] double state_bytes(const BucketSize& bucket, const plan::PlanSpec& spec, double moment_bytes);
/// Bytes of a stage's factors (Adafactor).
[[nodiscard]] double factor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Temporary memory while a stage's gradients are reduced after its passes, where all is on the device.
[[nodiscard]] ScratchBytes reduction_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);
/// The same while its parameters are updated and gathered.
[[nodiscard]] ScratchBytes update_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

}  // namespace orrery::cost
