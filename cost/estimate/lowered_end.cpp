// Lowered steps as those of a rank's clock.
#include "cost/estimate/lowered_end.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "cost/estimate/fold.h"
#include "cost/estimate/lowered_steps.h"
#include "cost/parameters/habits.h"
#include "plan/lower/lower.h"

namespace orrery::cost {

namespace {

using plan::Step;
using plan::StepKind;

/// The first step that no longer sums the squares of a rank's own gradients: messages and operators that agree on their
/// norm follow.
std::size_t first_behind_squares(const std::vector<Step>& steps) {
  const auto agrees = [](const models::Op& op) {
    return op.kind == models::OpKind::overflow || op.kind == models::OpKind::clip_coefficient;
  };
  auto step = std::ranges::find_if(steps, [&](const Step& s) { return std::ranges::any_of(s.ops, agrees); });
  while (step != steps.begin() && std::prev(step)->kind != StepKind::compute) --step;
  return static_cast<std::size_t>(step - steps.begin());
}

}  // namespace

double EndPart::copies() const {
  double sum = 0;
  for (const plan::Stream stream :
       {plan::Stream::to_host, plan::Stream::from_host, plan::Stream::to_nvme, plan::Stream::from_nvme})
    sum += exposed[static_cast<std::size_t>(stream)];
  return sum;
}

LoweredEnd lowered_end(const plan::Plan& plan, plan::StageId stage, const Pricing& pricing, const StageGroups& groups,
                       std::shared_ptr<StreamRates> rates) {
  const plan::Schedule schedule = plan::lower_ends(plan, stage, lower_options(pricing.stack()));
  const std::vector<Step>& steps = schedule.classes.front().blocks.back().steps;
  const std::size_t behind = first_behind_squares(steps);
  LoweredSteps writer(schedule, pricing, groups);
  std::size_t written = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i == behind) written = writer.out().size();
    writer.write(steps[i]);
  }
  constexpr Ticks kAhead = Ticks{1} << 60;  // of the host: the passes before have kept the device busy
  RankClock clock(overlaps_of(pricing), writer.out().reach(), std::move(rates));
  clock.state.host = -kAhead;
  LoweredEnd end;
  const auto take = [&](EndPart& part, Ticks time) {
    part.all = seconds(time);
    for (std::size_t s = 0; s < part.exposed.size(); ++s) part.exposed[s] = seconds(clock.waits.exposed[s]);
    clock.waits = {};
  };
  const std::span<const PassStep> all(writer.out().steps());
  clock.run(all.first(written));
  const Ticks squared = clock.state.device;
  take(end.squared, squared);
  clock.run(all.subspan(written));
  const Ticks computed = clock.state.device, updated = clock.settle() - squared;
  take(end.updated, updated);
  for (std::size_t s = 0; s < plan::kStreams; ++s)  // the last message is waited for, too
    if (const Ticks last = clock.finish(static_cast<plan::Stream>(s)); last > computed && last == squared + updated)
      end.updated.exposed[s] += seconds(last - computed);
  return end;
}

}  // namespace orrery::cost
