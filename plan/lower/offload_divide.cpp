// Steps of the device and of the host.
#include "plan/lower/offload_divide.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/index.h"
#include "models/operators/operators.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

namespace {

using base::at;
using models::Op;
using models::OpKind;

// The steps that one step is divided into.
class DividedStep {
 public:
  explicit DividedStep(const RankClass& rank_class) : class_(rank_class) {}

  // Operators on the optimizer's states and gradients run on the host if these live there.
  bool on_host(const Op& op) const {
    const auto moved = [&](int view) {
      if (view < 0) return false;
      const Buffer& b = buffer_of(view);
      return b.space != Space::device && (b.purpose == Purpose::optimizer_states || b.purpose == Purpose::gradients);
    };
    return std::any_of(op.in.begin(), op.in.end(), moved) || std::any_of(op.out.begin(), op.out.end(), moved);
  }

  std::vector<Step> divided(Step step) {
    parts_.clear();
    for (const Op& op : step.ops)
      for (Op& one : written_apart(op)) add(step, std::move(one));
    parts_.front().births = std::move(step.births);
    parts_.back().deaths = std::move(step.deaths);
    return std::move(parts_);
  }

 private:
  const Buffer& buffer_of(int view) const { return class_.buffers[class_.views[at(view)].buffer]; }

  // A compute copy in the same type as the values gets an operator of its own.
  std::vector<Op> written_apart(const Op& op) const {
    constexpr std::size_t kComputeCopy = 3;
    if (op.kind != OpKind::adamw || op.out.size() <= kComputeCopy ||
        buffer_of(op.out.front()).dtype != buffer_of(op.out[kComputeCopy]).dtype)
      return {op};
    Op update = op, copy;
    update.out.resize(kComputeCopy);
    copy.kind = OpKind::copy;
    copy.dtype = buffer_of(op.out.front()).dtype;
    copy.m = op.m;
    copy.in = {op.out.front()};
    copy.out = {op.out[kComputeCopy]};
    return {update, copy};
  }

  void add(const Step& whole_step, Op op) {
    const bool host = on_host(op);
    const bool moves = (op.kind == OpKind::copy || op.kind == OpKind::accumulate_into) && host &&
                       buffer_of(op.in.front()).space == Space::device;
    if (moves) {
      const View &source = class_.views[at(op.in.front())], &target = class_.views[at(op.out.front())];
      Step copy{.kind = StepKind::copy, .stream = Stream::to_host, .phase = whole_step.phase};
      copy.layer = whole_step.layer;
      copy.bucket = whole_step.bucket;
      copy.part = whole_step.part;
      copy.accumulate = op.kind == OpKind::accumulate_into;
      copy.source = source;
      copy.target = target;
      copy.reads = {source.buffer};
      copy.writes = {target.buffer};
      parts_.push_back(std::move(copy));
      return;
    }
    if (parts_.empty() || parts_.back().kind != StepKind::compute || parts_.back().on_host != host) {
      Step part{.kind = StepKind::compute, .stream = Stream::compute, .phase = whole_step.phase};
      part.layer = whole_step.layer;
      part.bucket = whole_step.bucket;
      part.part = whole_step.part;
      part.on_host = host;
      parts_.push_back(std::move(part));
    }
    Step& part = parts_.back();
    for (const int view : op.in)
      if (view >= 0) note(part.reads, class_.views[at(view)].buffer);
    for (const int view : op.out)
      if (view >= 0) note(part.writes, class_.views[at(view)].buffer);
    part.ops.push_back(std::move(op));
  }

  const RankClass& class_;
  std::vector<Step> parts_;
};

}  // namespace

void divide_steps(RankClass& rank_class, Block& block) {
  DividedStep divided(rank_class);
  std::vector<Step> out;
  for (Step& step : block.steps) {
    const bool hosts = step.kind == StepKind::compute && !of_layers(step) &&
                       std::any_of(step.ops.begin(), step.ops.end(), [&](const Op& op) { return divided.on_host(op); });
    if (!hosts) {
      out.push_back(std::move(step));
      continue;
    }
    std::vector<Step> parts = divided.divided(std::move(step));
    std::move(parts.begin(), parts.end(), std::back_inserter(out));
  }
  block.steps = std::move(out);
}

}  // namespace orrery::plan
