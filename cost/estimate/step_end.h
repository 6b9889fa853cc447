#pragma once
/// The beginning and the end of a stage's step: gradients zeroed, reduced and squared, parameters updated and gathered,
/// as plan/outline/ says. Private to cost/.
#include <cstdint>
#include <deque>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cost/estimate/fold.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/numbers_hash.h"
#include "cost/estimate/stage_groups.h"
#include "cost/estimate/stage_times.h"
#include "cost/estimate/update.h"
#include "cost/prices/pricing.h"
#include "plan/outline/reduction.h"

namespace orrery::cost {

/// When the gradients are reduced that are not reduced in every pass.
[[nodiscard]] inline plan::Reduces reduces(const plan::PlanSpec& spec) {
  return spec.reduces_early() ? plan::Reduces::in_the_last_pass : plan::Reduces::at_the_end;
}

/// A bucket's reduction, and its gather for a pass.
struct ReductionTimes {
  FoldTimes all;
  double joined = 0;  ///< only the operators that are in a step shared by several buckets
  double gather = 0;  ///< ZeRO 3: of parameters, for one pass
  std::vector<TimedItem> items = {};
  int parts = 1;
  double joined_host = 0;  ///< seconds of the host to issue those operators
};

/// Computes step ends once for all plans and stages with equal buckets and groups.
class StepEnds {
 public:
  explicit StepEnds(const Pricing& pricing) : pricing_(pricing) {}

  /// The end of a stage outside whose device states or parameters live.
  [[nodiscard]] std::shared_ptr<const EndProgram> lowered(const plan::Plan& plan, plan::StageId stage,
                                                          const std::vector<BucketSize>& buckets,
                                                          const StageGroups& groups);
  /// Sets begin and reduce to next. `agree`, `rates`: read if states or parameters live outside the device.
  void add(StageTimes& t, const plan::Plan& plan, plan::StageId stage, const std::vector<BucketSize>& buckets,
           const StageGroups& groups, const Agreements& agree, std::shared_ptr<StreamRates> rates);
  /// The ends of stages outside whose devices something lives and whose messages share links, in place of what add()
  /// found for each by itself. `passed`: seconds, by stage, at which its passes have ended.
  void together(std::vector<StageTimes>& stages, const std::vector<PipelineTimes::Neighbours>& neighbours,
                const std::vector<double>& passed, const Agreements& agree) const;
  /// One bucket's reduction at this time. `room`: holds results that depend on too much to be shared with other plans.
  using Room = std::deque<ReductionTimes>;
  [[nodiscard]] const ReductionTimes& reduction(const plan::BucketShape& bucket, const plan::PlanSpec& spec,
                                                plan::Reduces when, const StageGroups& groups, Room& room);

 private:
  using Key = std::vector<std::int64_t>;
  using Ends = std::tuple<double, double, double, double, double, double, double, double, double,
                          std::shared_ptr<const EndProgram>, NextGathers>;
  [[nodiscard]] Key key_of(const plan::PlanSpec& spec, const StageGroups& groups, std::size_t more) const;
  [[nodiscard]] Key key_of(const plan::Plan& plan, plan::StageId stage, const std::vector<BucketSize>& buckets,
                           const StageGroups& groups) const;

  const Pricing& pricing_;
  std::unordered_map<Key, std::shared_ptr<const EndProgram>, NumbersHash> lowered_;
  std::unordered_map<Key, Ends, NumbersHash> ends_;
  std::unordered_map<Key, ReductionTimes, NumbersHash> reductions_;
};

}  // namespace orrery::cost
