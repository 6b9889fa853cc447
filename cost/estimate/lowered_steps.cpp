/// Translates lowered steps one by one.
#include "cost/estimate/lowered_steps.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::cost {

using plan::Step;
using plan::StepKind;
using plan::Stream;

void LoweredSteps::write(const Step& step) {
  if (step.runs_in(plan::kLateStep)) step.kind == StepKind::compute ? compute(step) : begin(step);
}

void LoweredSteps::compute(const Step& step) {
  for (std::deque<Message>& stream : in_flight_) {
    const auto last = std::find_if(stream.rbegin(), stream.rend(), [&](const Message& m) {
      return plan::compute_waits(uses(step), uses(*m.step), !m.step->deaths.empty());
    });
    if (last == stream.rend()) continue;
    out_.wait(last->step->stream, last->number);
    stream.erase(stream.begin(), last.base());
  }
  const bool reads = reads_input(step);
  out_.compute(pricing_.compute_time(step).value, pricing_.host_time(step.ops).value, reads);
}

void LoweredSteps::begin(const Step& step) {
  const bool reads = reads_input(step);
  for (const std::deque<Message>& stream : in_flight_) {
    if (stream.empty() || stream.front().step->stream == step.stream) continue;
    const auto last = std::find_if(stream.rbegin(), stream.rend(),
                                   [&](const Message& m) { return plan::message_waits(uses(step), uses(*m.step)); });
    if (last != stream.rend()) out_.after(last->step->stream, last->number);
  }
  const Ticks host = step.stream == Stream::tensor ? ticks(of_layers_.host) : 0;
  const int number = out_.begin(step.stream, lane(step), seconds(step), !step.deaths.empty(), host);
  out_.steps().back().reads_input = reads;
  in_flight_[static_cast<std::size_t>(step.stream)].push_back({&step, number});
}

bool LoweredSteps::reads_input(const Step& step) {
  const bool reads = std::ranges::any_of(
      step.reads, [&](plan::BufferId buffer) { return std::ranges::find(inputs_, buffer) != inputs_.end(); });
  if (reads && !input_) input_ = out_.size();
  return reads;
}

const std::vector<int>& LoweredSteps::members(plan::GroupId group) {
  const auto [known, fresh] = members_.try_emplace(group);
  if (fresh) known->second = schedule_.groups[group].members(class_.representative);
  return known->second;
}

double LoweredSteps::seconds(const Step& step) {
  if (step.stream == Stream::exchange) {
    ENSURE(!exchanged_all(), "more exchanges than the {} of the layers", next_);
    return of_layers_.exchanges[next_++];
  }
  const base::Bytes bytes = pricing_.as_sent(step, class_.buffers, groups_.precision);
  const Lockstep lockstep = groups_.lockstep.at(pricing_);
  if (step.kind == StepKind::copy) return lockstep.copy_time(step.stream, bytes, step.accumulate).value;
  return lockstep.collective_time(step.collective, bytes, members(step.group), step.stream).value;
}

Lane LoweredSteps::lane(const Step& step) {
  if (step.stream == Stream::tensor && members(step.group) != groups_.tensor) return kExpertTensorLane;
  if (step.kind == StepKind::copy && step.accumulate) return kAddingLane;
  if (step.kind != StepKind::collective || step.stream != Stream::data) return lane_of(step.stream);
  const bool experts = step.bucket.exists() && class_.buckets[step.bucket].experts;
  for (const plan::Over over :
       {plan::Over::data, plan::Over::copies, plan::Over::tensor, plan::Over::near, plan::Over::far, plan::Over::parts})
    if (groups_.of(experts).over(over) == members(step.group)) return lane_of(over, experts);
  return lane_of(step.stream);
}

}  // namespace orrery::cost
