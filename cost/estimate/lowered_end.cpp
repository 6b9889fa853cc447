// Lowered steps as those of a rank's clock, and what lives while they run.
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

EndMemory memory_of(const plan::RankClass& ends) {
  EndMemory out;
  for (const plan::Buffer& buffer : ends.buffers)
    if (buffer.persistent && buffer.space != plan::Space::device)
      (buffer.space == plan::Space::host ? out.host : out.nvme) +=
          buffer.versions * arena_bytes(buffer.elements, buffer.dtype);
  const plan::Block& block = ends.blocks.back();
  out.staging = scratch_bytes({scratch_of(ends, block, plan::Space::host)}).packed;
  out.device = scratch_of(ends, block, plan::Space::device);
  out.alive = static_cast<double>(plan::most_alive(out.device));
  return out;
}

}  // namespace

double EndPart::copies() const {
  double sum = 0;
  for (const plan::Stream stream :
       {plan::Stream::to_host, plan::Stream::from_host, plan::Stream::to_nvme, plan::Stream::from_nvme})
    sum += exposed[static_cast<std::size_t>(stream)];
  return sum;
}

EndProgram lowered_end(const plan::Plan& plan, plan::StageId stage, const Pricing& pricing, const StageGroups& groups) {
  plan::LowerOptions options = lower_options(pricing.stack());
  options.shares_programs = true;
  const plan::Schedule schedule = plan::lower_ends(plan, stage, options);
  const plan::RankClass& ends = schedule.classes.front();
  const std::vector<Step>& steps = ends.blocks.back().steps;
  const std::size_t behind = first_behind_squares(steps);
  LoweredSteps writer(schedule, pricing, groups);
  EndProgram out;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i == behind) out.squared = writer.out().size();
    writer.write(steps[i]);
  }
  out.reach = writer.out().reach();
  out.steps = std::move(writer.out().steps());
  // What is fetched for the update comes while the stages agree.
  const auto begins = [](const PassStep& step) {
    return step.kind == PassStep::Kind::begin || step.kind == PassStep::Kind::after;
  };
  while (out.squared < out.steps.size() && begins(out.steps[out.squared])) ++out.squared;
  out.memory = memory_of(ends);
  return out;
}

EndsRun::EndsRun(std::vector<const EndProgram*> programs, const RankClock::Overlaps& overlaps,
                 std::shared_ptr<StreamRates> rates, const std::vector<double>& begins)
    : programs_(std::move(programs)),
      streams_(rates ? std::make_shared<SharedStreams>(std::move(rates)) : nullptr),
      done_(programs_.size(), 0) {
  constexpr Ticks kAhead = Ticks{1} << 60;  // of the host: the passes before have kept the device busy
  const bool others = programs_.size() > 1;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    RankClock& clock =
        clocks_.emplace_back(overlaps, programs_[i]->reach, streams_, RankClock::Beside{others, others ? i : 0});
    clock.state.host = -kAhead;
    clock.state.device = ticks(begins[i]);
    begins_.push_back(clock.state.device);
  }
}

void EndsRun::run(bool to_the_end) {
  for (bool all = false; !all;) {
    bool moved = false;
    all = true;
    for (std::size_t i = 0; i < clocks_.size(); ++i) {
      const std::span<const PassStep> steps(programs_[i]->steps);
      const std::size_t end = to_the_end ? steps.size() : programs_[i]->squared;
      const std::size_t more = clocks_[i].run(steps.subspan(done_[i], end - done_[i]));
      done_[i] += more;
      if (more > 0 && to_the_end && done_[i] == end) clocks_[i].need_all();
      moved = moved || more > 0;
      all = all && done_[i] == end;
    }
    if (!all && !moved) streams_->go_on();
  }
}

namespace {

EndPart taken(RankClock& clock, Ticks time) {
  EndPart part{.all = seconds(time)};
  for (std::size_t s = 0; s < part.exposed.size(); ++s) part.exposed[s] = seconds(clock.waits.exposed[s]);
  clock.waits = {};
  return part;
}

}  // namespace

std::vector<EndPart> EndsRun::squared() {
  run(false);
  std::vector<EndPart> out;
  for (std::size_t i = 0; i < clocks_.size(); ++i)
    out.push_back(taken(clocks_[i], clocks_[i].state.device - begins_[i]));
  return out;
}

std::vector<EndPart> EndsRun::updated(double from) {
  for (std::size_t i = 0; i < clocks_.size(); ++i)
    begins_[i] = clocks_[i].state.device = std::max(clocks_[i].state.device, ticks(from));
  run(true);
  std::vector<EndPart> out;
  for (std::size_t i = 0; i < clocks_.size(); ++i) {
    RankClock& clock = clocks_[i];
    const Ticks computed = clock.state.device, end = clock.settle();
    EndPart& part = out.emplace_back(taken(clock, end - begins_[i]));
    for (std::size_t s = 0; s < plan::kStreams; ++s)  // the last message is waited for, too
      if (const Ticks last = clock.finish(static_cast<plan::Stream>(s)); last > computed && last == end)
        part.exposed[s] += seconds(last - computed);
  }
  return out;
}

}  // namespace orrery::cost
