/// Replays 1F1B over consecutive training steps.
#include "cost/estimate/asynchronous.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::cost {

namespace {

constexpr double kUnknown = -1;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

struct StageRates {
  std::int64_t next = 0;  ///< turn: passes that fill, then per step alternating forward and backward, and its update
  double computed = 0;
  double transfer = 0;
  std::vector<double> made[2];   ///< forward, backward: end of the pass, by micro-batch
  std::vector<double> taken[2];  ///< when the receiving stage has it
  std::vector<double> met;       ///< by step: when the stage is ready to update
};

class Run {
 public:
  Run(const AsynchronousTimes& times, std::int64_t micro_batches, std::int64_t steps)
      : times_(times), m_(micro_batches), steps_(steps), p_(static_cast<std::int64_t>(times.forward.size())) {
    stages_.resize(at(p_));
    for (StageRates& stage : stages_) {
      for (auto* list : {&stage.made[0], &stage.made[1], &stage.taken[0], &stage.taken[1]})
        list->assign(at(m_ * steps_ + p_), kUnknown);
      stage.met.assign(at(steps_), kUnknown);
    }
  }

  /// By stage: end of its last update, and time spent waiting for transfers.
  std::vector<StageRates> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::int64_t s = 0; s < p_; ++s)
        while (advance(s)) moved = true;
    }
    for (std::int64_t s = 0; s < p_; ++s)
      ENSURE(stages_[at(s)].next == turns(s), "stage {} stopped at turn {} of {}", s, stages_[at(s)].next, turns(s));
    return std::move(stages_);
  }

 private:
  [[nodiscard]] std::int64_t ahead(std::int64_t s) const { return p_ - 1 - s; }
  [[nodiscard]] std::int64_t turns(std::int64_t s) const { return ahead(s) + steps_ * (2 * m_ + 1); }

  bool advance(std::int64_t s) {
    StageRates& me = stages_[at(s)];
    if (me.next == turns(s)) return false;
    const std::int64_t turn = me.next - ahead(s);
    if (turn < 0) return pass(s, me.next, true);
    const std::int64_t step = turn / (2 * m_ + 1), in_step = turn % (2 * m_ + 1);
    if (in_step == 2 * m_) return update(s, step);
    const bool forward = in_step % 2 == 0;
    return pass(s, step * m_ + in_step / 2 + (forward ? ahead(s) : 0), forward);
  }

  bool pass(std::int64_t s, std::int64_t g, bool forward) {
    StageRates& me = stages_[at(s)];
    const std::size_t way = forward ? 0 : 1;
    const std::int64_t from = forward ? s - 1 : s + 1, to = forward ? s + 1 : s - 1;
    double start = me.computed;
    if (to >= 0 && to < p_ && g > 0) {  // the previous message occupies the buffer that this pass writes
      const double gone = me.taken[way][at(g - 1)];
      if (gone == kUnknown) return false;
      start = std::max(start, gone);
    }
    if (from >= 0 && from < p_) {
      StageRates& sender = stages_[at(from)];
      const double ready = sender.made[way][at(g)];
      if (ready == kUnknown) return false;
      const double hop = times_.hop[at(std::min(s, from))];
      double& arrived = sender.taken[way][at(g)];
      const double prelude = forward || times_.prelude.empty() ? 0 : times_.prelude[at(s)];
      if (arrived == kUnknown) arrived = (times_.overlaps ? ready : std::max(ready, start + prelude)) + hop;
      if (arrived > start + prelude) me.transfer += std::min(hop, arrived - start - prelude);
      start = std::max(start, arrived - prelude);
    }
    me.computed = start + (forward ? times_.forward : times_.backward)[at(s)];
    me.made[way][at(g)] = me.computed;
    // An idle receiver has posted its receive already; one that cannot overlap receives when it reaches that turn.
    if (times_.overlaps && to >= 0 && to < p_) me.taken[way][at(g)] = me.computed + times_.hop[at(std::min(s, to))];
    ++me.next;
    return true;
  }

  bool update(std::int64_t s, std::int64_t step) {
    StageRates& me = stages_[at(s)];
    me.met[at(step)] = me.computed;
    if (times_.tied && (s == 0 || s == p_ - 1)) {
      const double other = stages_[at(p_ - 1 - s)].met[at(step)];
      if (other == kUnknown) return false;
      me.computed = std::max(me.computed, other);
    }
    me.computed += times_.update[at(s)];
    ++me.next;
    return true;
  }

  const AsynchronousTimes& times_;
  std::int64_t m_, steps_, p_;
  std::vector<StageRates> stages_;
};

SteadyStep replayed(const AsynchronousTimes& times, std::int64_t micro_batches) {
  const auto stages = static_cast<std::int64_t>(times.forward.size());
  const std::int64_t in_flight = micro_batches >= stages ? 2 : stages;  // steps
  const std::int64_t filled = 2 * in_flight + 2;
  const std::vector<StageRates> few = Run(times, micro_batches, filled).run();
  const std::vector<StageRates> many = Run(times, micro_batches, filled + in_flight).run();
  SteadyStep out;
  for (std::size_t s = 0; s < few.size(); ++s) {
    const auto steps = static_cast<double>(in_flight);
    out.period = std::max(out.period, (many[s].computed - few[s].computed) / steps);
    out.transfer.push_back((many[s].transfer - few[s].transfer) / steps);
  }
  return out;
}

}  // namespace

SteadyStep asynchronous_pipeline(const AsynchronousTimes& times, std::int64_t micro_batches) {
  const auto stages = static_cast<std::int64_t>(times.forward.size());
  ENSURE(stages >= 2 && times.hop.size() + 1 == times.forward.size(), "{} stages with {} hops", stages,
         times.hop.size());
  const std::int64_t enough = 4 * stages;  // of one step: by then each `stages` micro-batches take equally long
  if (micro_batches <= enough) return replayed(times, micro_batches);
  SteadyStep out = replayed(times, enough);
  const SteadyStep before = replayed(times, enough - stages);
  const double periods = static_cast<double>(micro_batches - enough) / static_cast<double>(stages);
  out.period += periods * (out.period - before.period);
  for (std::size_t s = 0; s < out.transfer.size(); ++s)
    out.transfer[s] += periods * (out.transfer[s] - before.transfer[s]);
  return out;
}

}  // namespace orrery::cost
