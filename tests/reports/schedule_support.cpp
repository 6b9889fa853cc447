/// Makes the sample schedule and replays it with fixed durations.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/reports/sample.h"

namespace orrery::sample {
namespace {

using plan::Phase;
using plan::Step;
using plan::StepKind;
using plan::Stream;
using Buffers = std::vector<plan::BufferId>;

constexpr plan::BufferId kGradients(1), kSaved(2), kMessage(3), kScratch(4);  // of both stages

Step compute(Phase phase, std::string part, int layer, Buffers births, Buffers deaths) {
  Step s;
  s.phase = phase;
  s.part = std::move(part);
  s.layer = plan::LayerId::read(layer);
  s.births = std::move(births);
  s.deaths = std::move(deaths);
  return s;
}

Step message(StepKind kind, Phase phase, int peer, int tag, Buffers births, Buffers deaths) {
  Step s = compute(phase, plan::name_of(kind), -1, std::move(births), std::move(deaths));
  s.kind = kind;
  s.stream = kind == StepKind::send ? Stream::pipeline_send : Stream::pipeline_recv;
  s.peer = peer;
  s.tag = tag;
  (kind == StepKind::send ? s.source : s.target) = plan::View{kMessage, 0, 1 << 18};
  return s;
}

Step gradient_all_reduce() {
  Step s = compute(Phase::gradient_reduce, "all_reduce", -1, {}, {});
  s.kind = StepKind::collective;
  s.stream = Stream::data;
  s.group = plan::GroupId(0);
  s.source = s.target = plan::View{kGradients, 0, 1 << 20};
  return s;
}

plan::RankClass stage_of_two(int stage) {
  const bool first = stage == 0;
  plan::RankClass c;
  c.stage = plan::StageId(stage);
  c.count = 2;
  c.representative = 2 * stage;
  c.buffers = {{"parameters", plan::Purpose::parameters, models::DType::fp32, 1 << 20, true, false},
               {"gradients", plan::Purpose::gradients, models::DType::fp32, 1 << 20, true, false},
               {"saved", plan::Purpose::activations, models::DType::fp32, 1 << 19, false, true},
               {"message", plan::Purpose::communication, models::DType::fp32, 1 << 18, false, true},
               {"scratch", plan::Purpose::workspace, models::DType::fp32, 3 << 17, false, false}};
  plan::Block forward{"forward", {}}, backward{"backward", {}}, finish{"finish", {}};
  if (!first) forward.steps.push_back(message(StepKind::recv, Phase::forward, -1, 1, {kMessage}, {}));
  forward.steps.push_back(compute(Phase::forward, "attention", stage, {kSaved}, {}));
  forward.steps.push_back(compute(Phase::forward, "mlp", stage, first ? Buffers{kMessage} : Buffers{},
                                  first ? Buffers{} : Buffers{kMessage}));
  if (first) forward.steps.push_back(message(StepKind::send, Phase::forward, +1, 1, {}, {kMessage}));
  if (first) backward.steps.push_back(message(StepKind::recv, Phase::backward, +1, 2, {kMessage}, {}));
  backward.steps.push_back(compute(Phase::backward, "mlp", stage, {kScratch}, {}));
  backward.steps.push_back(compute(Phase::backward, "attention", stage, first ? Buffers{} : Buffers{kMessage},
                                   first ? Buffers{kSaved, kMessage, kScratch} : Buffers{kSaved, kScratch}));
  if (!first) backward.steps.push_back(message(StepKind::send, Phase::backward, -1, 2, {}, {kMessage}));
  finish.steps = {gradient_all_reduce(), compute(Phase::optimizer, "adamw", -1, {}, {})};
  c.blocks = {forward, backward, finish};
  if (first) {
    c.program = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {0, 3}, {1, 2}, {1, 3}, {2, -1}};
  } else {
    c.program = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, -1}};
  }
  return c;
}

/// Seconds of a step of the sample, before any unevenness.
double duration(const Step& s) {
  if (s.kind == StepKind::collective) return 3.1e-3;
  if (s.kind != StepKind::compute) return 0.4e-3;
  if (s.phase == Phase::optimizer) return 1.2e-3;
  const double forward = s.part == "mlp" ? 2.4e-3 : 1.7e-3;
  return s.phase == Phase::backward ? 2 * forward : forward;
}

/// Both stages of one replica: steps in program order, sends beside computation.
class Replay {
 public:
  Replay(const plan::Schedule& schedule, double slowdown) : schedule_(schedule), slowdown_(slowdown) {}

  std::vector<plan::Span> run(int replica, int iteration) {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < 2; ++stage) progress |= advance(stage, replica, iteration);
    }
    for (std::size_t stage = 0; stage < 2; ++stage)
      EXPECT_EQ(next_[stage].entry, std::ssize(schedule_.classes[stage].program)) << "the sample is stuck";
    return spans_;
  }

 private:
  /// Runs a stage until it waits for a message; true if anything ran.
  bool advance(std::size_t stage, int replica, int iteration) {
    const plan::RankClass& c = schedule_.classes[stage];
    bool any = false;
    for (plan::StepRef& at = next_[stage]; at.entry < std::ssize(c.program); at = {at.entry + 1, 0}) {
      const plan::Entry& entry = c.program[static_cast<std::size_t>(at.entry)];
      const auto& steps = c.blocks[static_cast<std::size_t>(entry.block)].steps;
      for (; at.step < std::ssize(steps); ++at.step) {
        const Step& s = steps[static_cast<std::size_t>(at.step)];
        plan::Span span{c.representative + replica, iteration, at, entry.micro_batch, clock_[stage], clock_[stage], 0};
        if (s.kind == StepKind::recv) {
          const auto sent = sent_.find({s.tag, entry.micro_batch});
          if (sent == sent_.end()) return any;
          span.start = std::max(span.ready, sent->second);
        }
        if (s.kind == StepKind::send) sent_[{s.tag, entry.micro_batch}] = span.start;
        const double uneven = 0.2 * (slowdown_ - 1) * ((span.rank * 7 + at.entry * 3) % 5);
        span.end = span.start + duration(s) * (slowdown_ + uneven);
        if (s.kind != StepKind::send) clock_[stage] = span.end;
        spans_.push_back(span);
        any = true;
      }
    }
    return any;
  }

  const plan::Schedule& schedule_;
  double slowdown_;
  std::vector<plan::Span> spans_;
  double clock_[2] = {0, 0};
  plan::StepRef next_[2];
  std::map<std::pair<int, int>, double> sent_;
};

}  // namespace

plan::Schedule schedule() {
  plan::Schedule s;
  s.spec.mesh.data = s.spec.mesh.pipeline = 2;
  s.spec.shape.batch = 8;
  s.spec.shape.sequence = 128;
  s.spec.stages.layers_per_stage = {1, 1};
  s.groups = {{"data", {{1, 2}}}};
  s.classes = {stage_of_two(0), stage_of_two(1)};
  return s;
}

plan::Timeline timeline(const plan::Schedule& schedule, plan::Origin origin) {
  plan::Timeline t;
  t.origin = origin;
  t.spec = schedule.spec;
  const bool measured = origin == plan::Origin::measured;
  for (int iteration = 0; iteration < (measured ? 3 : 1); ++iteration) {
    for (int replica = 0; replica < (measured ? 2 : 1); ++replica) {
      const double slowdown = measured ? 1.08 + 0.02 * iteration + 0.01 * replica : 1.0;
      for (const plan::Span& span : Replay(schedule, slowdown).run(replica, iteration)) t.spans.push_back(span);
    }
  }
  for (const plan::Span& span : t.spans)
    if (span.iteration == (measured ? 1 : 0)) t.step_time = std::max(t.step_time, span.end);
  return t;
}

}  // namespace orrery::sample
