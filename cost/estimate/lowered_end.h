#pragma once
/// The end of a step whose states or parameters live outside the device: its lowered block (plan::lower_ends), on the
/// clocks of one rank. Which copies then wait for which messages and operators follows from the buffers that the steps
/// use, so no outline says it. Private to cost/.
#include <array>
#include <memory>

#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_groups.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds of a part of a step's end.
struct EndPart {
  double all = 0;
  std::array<double, plan::kStreams> exposed = {};  ///< of these: waits for messages, by stream
  [[nodiscard]] double copies() const;              ///< of these: waits for copies
};
/// Until the squares of the rank's own gradients are summed; and from there to the end, with the messages by which the
/// stages agree.
struct LoweredEnd {
  EndPart squared, updated;
};

/// `rates`: as RankClock takes them.
[[nodiscard]] LoweredEnd lowered_end(const plan::Plan& plan, plan::StageId stage, const Pricing& pricing,
                                     const StageGroups& groups, std::shared_ptr<StreamRates> rates);

}  // namespace orrery::cost
