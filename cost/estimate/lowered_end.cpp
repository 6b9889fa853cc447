// Lowered steps as those of a rank's clock.
#include "cost/estimate/lowered_end.h"

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cost/estimate/fold.h"
#include "cost/estimate/pass_writer.h"
#include "cost/parameters/habits.h"
#include "plan/lower/lower.h"
#include "plan/schedule/waits.h"

namespace orrery::cost {

namespace {

using plan::Step;
using plan::StepKind;

/// Writes lowered steps down in order; each waits for what the rules of plan/schedule/waits.h say.
class StepWriter {
 public:
  StepWriter(const plan::Schedule& schedule, const Pricing& pricing, const StageGroups& groups)
      : schedule_(schedule), class_(schedule.classes.front()), pricing_(pricing), groups_(groups) {}

  void write(const Step& step) {
    if (step.runs_in(plan::kLateStep)) step.kind == StepKind::compute ? compute(step) : begin(step);
  }
  [[nodiscard]] const PassWriter& written() const { return out_; }
  [[nodiscard]] std::vector<PassStep>& steps() { return out_.steps(); }

 private:
  struct Message {
    const Step* step = nullptr;
    int number = 0;  ///< on its stream
  };

  [[nodiscard]] plan::BufferUses uses(const Step& step) const { return {&class_, &step, -1}; }

  void compute(const Step& step) {
    for (std::deque<Message>& stream : in_flight_) {
      const auto last = std::find_if(stream.rbegin(), stream.rend(), [&](const Message& m) {
        return plan::compute_waits(uses(step), uses(*m.step), !m.step->deaths.empty());
      });
      if (last == stream.rend()) continue;
      out_.wait(last->step->stream, last->number);
      stream.erase(stream.begin(), last.base());
    }
    out_.compute(pricing_.compute_time(step).value, pricing_.host_time(step.ops).value);
  }

  void begin(const Step& step) {
    for (const std::deque<Message>& stream : in_flight_) {
      if (stream.empty() || stream.front().step->stream == step.stream) continue;
      const auto last = std::find_if(stream.rbegin(), stream.rend(),
                                     [&](const Message& m) { return plan::message_waits(uses(step), uses(*m.step)); });
      if (last != stream.rend()) out_.after(last->step->stream, last->number);
    }
    const int number = out_.begin(step.stream, lane(step), seconds(step), !step.deaths.empty());
    in_flight_[static_cast<std::size_t>(step.stream)].push_back({&step, number});
  }

  [[nodiscard]] const std::vector<int>& members(plan::GroupId group) {
    const auto [known, fresh] = members_.try_emplace(group);
    if (fresh) known->second = schedule_.groups[group].members(class_.representative);
    return known->second;
  }

  [[nodiscard]] double seconds(const Step& step) {
    const base::Bytes bytes = pricing_.as_sent(step, class_.buffers, groups_.precision);
    const Lockstep lockstep = groups_.lockstep.at(pricing_);
    if (step.kind == StepKind::copy) return lockstep.copy_time(step.stream, bytes, step.accumulate).value;
    return lockstep.collective_time(step.collective, bytes, members(step.group), step.stream).value;
  }
  [[nodiscard]] Lane lane(const Step& step) {
    if (step.kind != StepKind::collective || step.stream != plan::Stream::data) return lane_of(step.stream);
    const bool experts = step.bucket.exists() && class_.buckets[step.bucket].experts;
    for (const plan::Over over : {plan::Over::data, plan::Over::copies, plan::Over::tensor, plan::Over::near,
                                  plan::Over::far, plan::Over::parts})
      if (groups_.of(experts).over(over) == members(step.group)) return lane_of(over, experts);
    return lane_of(step.stream);
  }

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  const Pricing& pricing_;
  const StageGroups& groups_;
  PassWriter out_{0};
  std::array<std::deque<Message>, plan::kStreams> in_flight_;
  std::map<plan::GroupId, std::vector<int>> members_;
};

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
  StepWriter writer(schedule, pricing, groups);
  std::size_t written = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i == behind) written = writer.steps().size();
    writer.write(steps[i]);
  }
  constexpr Ticks kAhead = Ticks{1} << 60;  // of the host: the passes before have kept the device busy
  RankClock clock(overlaps_of(pricing), writer.written().reach(), std::move(rates));
  clock.state.host = -kAhead;
  LoweredEnd end;
  const auto take = [&](EndPart& part, Ticks time) {
    part.all = seconds(time);
    for (std::size_t s = 0; s < part.exposed.size(); ++s) part.exposed[s] = seconds(clock.waits.exposed[s]);
    clock.waits = {};
  };
  const std::span<const PassStep> all(writer.steps());
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
