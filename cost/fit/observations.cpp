/// Turns spans into observations.
#include "cost/fit/observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace orrery::cost {

double predicted(const Observation& o, const Pricing& pricing) {
  if (o.saving != nullptr) return checkpoint_price(o.size, pricing).*o.saving;
  const double dispatch = pricing.calibration().get("stack.dispatch_overhead", 0);
  if (o.gap) return dispatch;
  if (o.waiting) return o.computed * pricing.calibration().get("stack.rank_jitter", 0);
  const double longer = (1 + pricing.jitter()) * (o.alone ? 1 + pricing.neighbour_slowdown() : 1);
  if (o.op) return pricing.op_time(*o.op).value / longer;
  if (!o.step) return o.steps * dispatch + pricing.step_overhead().value;
  switch (o.step->kind) {
    case plan::StepKind::compute: return (pricing.compute_time(*o.step).value - dispatch) / longer;
    case plan::StepKind::collective: {
      const double inside = pricing.stack().host_inline ? dispatch : 0;
      return pricing.collective_time(*o.step, o.rank_class->buffers, o.members).value - inside;
    }
    case plan::StepKind::send:
    case plan::StepKind::recv: {
      const double inside = pricing.stack().host_inline ? dispatch : 0;
      return pricing.send_time(*o.step, o.rank_class->buffers, o.members[0], o.members[1]).value - inside;
    }
    case plan::StepKind::copy: {
      const double inside = pricing.stack().host_inline ? dispatch : 0;
      const base::Bytes bytes{static_cast<double>(o.step->message_bytes(o.rank_class->buffers))};
      return pricing.copy_time(o.step->stream, bytes, o.step->accumulate).value - inside;
    }
  }
  return 0;
}

namespace {

using plan::Span;

/// Length of the union of intervals.
double covered(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double sum = 0, end = -1e300;
  for (const auto& [from, to] : intervals) {
    if (to <= end) continue;
    sum += to - std::max(from, end);
    end = to;
  }
  return sum;
}

/// Mean without the smallest and largest tenth: robust like the median against other work on the machine, yet the means
/// of a step's parts add up to the step's.
double trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 10;
  double sum = 0;
  for (std::size_t i = cut; i < values.size() - cut; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * cut);
}

/// Training steps whose duration lies in the middle half.
std::set<std::int32_t> typical_iterations(const std::vector<Span>& spans, int skip) {
  std::map<std::int32_t, double> length;
  for (const Span& s : spans)
    if (s.iteration >= skip) length[s.iteration] = std::max(length[s.iteration], s.end);
  std::vector<std::pair<double, std::int32_t>> order;
  for (const auto& [iteration, end] : length) order.emplace_back(end, iteration);
  std::sort(order.begin(), order.end());
  const std::size_t n = order.size();
  std::set<std::int32_t> out;
  for (std::size_t i = n / 4; i < n - n / 4; ++i) out.insert(order[i].second);
  return out;
}

std::string words(const plan::Schedule& schedule, const plan::Step& step) {
  switch (step.kind) {
    case plan::StepKind::compute: return fmt::format("{} {}", step.part, plan::name_of(step.phase));
    case plan::StepKind::collective:
      return fmt::format("{} {}", plan::name_of(step.collective), schedule.groups[step.group].name);
    case plan::StepKind::send:
    case plan::StepKind::recv: return "send";
    case plan::StepKind::copy: return fmt::format("copy {}", plan::name_of(step.stream));
  }
  return step.part;
}

const plan::Step& step_of(const plan::RankClass& c, const plan::StepRef& at) {
  const plan::Entry& entry = c.program[static_cast<std::size_t>(at.entry)];
  return c.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(at.step)];
}

/// When each rank computes, by training step.
class Computing {
 public:
  explicit Computing(const FitRun& run) {
    for (const Span& s : run.timeline.spans)
      if (step_of(run.schedule.class_of(s.rank), s.at).kind == plan::StepKind::compute)
        spans_[{s.rank, s.iteration}].emplace_back(s.start, s.end);
    for (auto& [key, spans] : spans_) std::sort(spans.begin(), spans.end());
  }

  /// Seconds of compute between two moments; compute spans of a rank do not overlap.
  [[nodiscard]] double between(std::int32_t rank, std::int32_t iteration, double from, double to) const {
    const auto found = spans_.find({rank, iteration});
    if (found == spans_.end()) return 0;
    const auto& spans = found->second;
    auto at = std::lower_bound(spans.begin(), spans.end(), std::make_pair(from, from));
    if (at != spans.begin()) --at;  // it may reach into the interval
    double sum = 0;
    for (; at != spans.end() && at->first < to; ++at)
      sum += std::max(0.0, std::min(to, at->second) - std::max(from, at->first));
    return sum;
  }

 private:
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::pair<double, double>>> spans_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// The cost of a training step outside its spans: between them, before the first and after the last. Both parts are
/// time differences within the same training steps, so that a slow step does not count as overhead.
Observation rest_of(const FitRun& run, int index, const std::set<std::int32_t>& iterations) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::pair<double, double>>> busy;
  std::map<std::int32_t, double> ends;  // of all training steps, like the median step time
  std::size_t steps = 0;
  for (const Span& s : run.timeline.spans) {
    ends[s.iteration] = std::max(ends[s.iteration], s.end);
    if (!iterations.count(s.iteration)) continue;
    const bool compute = step_of(run.schedule.class_of(s.rank), s.at).kind == plan::StepKind::compute;
    busy[{s.rank, s.iteration}].emplace_back(compute ? s.start : s.ready, s.end);
    ++steps;
  }
  std::vector<double> between, lengths;
  for (const auto& [key, intervals] : busy) {
    double first = intervals.front().first, last = 0;
    for (const auto& [from, to] : intervals) first = std::min(first, from), last = std::max(last, to);
    between.push_back(last - first - covered(intervals));
  }
  for (const auto& [iteration, end] : ends) lengths.push_back(end);
  Observation o;
  o.run = index;
  o.what = "between steps";
  o.count = 1;
  const auto lines = static_cast<double>(std::max<std::size_t>(1, busy.size()));
  o.steps = static_cast<double>(steps) / lines;
  o.seconds = median(std::move(between)) + std::max(0.0, run.timeline.step_time - median(std::move(lengths)));
  return o;
}

/// The time between a compute step and the one that directly follows it in the program: the cost of a step itself.
Observation gaps_of(const FitRun& run, int index, const std::set<std::int32_t>& iterations) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::map<plan::StepRef, std::pair<double, double>>> computed;
  for (const Span& s : run.timeline.spans)
    if (iterations.count(s.iteration) && step_of(run.schedule.class_of(s.rank), s.at).kind == plan::StepKind::compute)
      computed[{s.rank, s.iteration}][s.at] = {s.start, s.end};
  std::vector<double> gaps;
  for (const auto& [key, spans] : computed)
    for (auto next = spans.begin(), before = next; next != spans.end(); before = next++) {
      const bool follows = next->first.entry == before->first.entry && next->first.step == before->first.step + 1;
      if (follows) gaps.push_back(next->second.first - before->second.second);
    }
  Observation o;
  o.run = index;
  o.gap = true;
  o.what = "dispatch";
  o.count = static_cast<double>(gaps.size()) / static_cast<double>(std::max<std::size_t>(1, computed.size()));
  if (!gaps.empty()) o.seconds = trimmed_mean(std::move(gaps));
  return o;
}

/// Time that equal ranks wait for each other: they have the same work, so any delay is jitter.
Observation waiting_of(const FitRun& run, int index, const std::set<std::int32_t>& iterations) {
  Observation o;
  o.run = index;
  o.waiting = true;
  o.what = "waiting for the slowest";
  o.count = 1;
  std::set<std::pair<std::int32_t, std::int32_t>> lines;
  for (const Span& s : run.timeline.spans) {
    if (!iterations.count(s.iteration)) continue;
    lines.insert({s.rank, s.iteration});
    const plan::RankClass& c = run.schedule.class_of(s.rank);
    const plan::Step& step = step_of(c, s.at);
    if (step.kind == plan::StepKind::compute) o.computed += s.end - s.start;
    if (step.kind != plan::StepKind::collective) continue;
    const std::vector<int> members = run.schedule.groups[step.group].members(s.rank);
    const bool equal =
        std::all_of(members.begin(), members.end(), [&](int rank) { return &run.schedule.class_of(rank) == &c; });
    if (equal) o.seconds += s.start - s.ready;
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, lines.size()));
  o.seconds /= count;
  o.computed /= count;
  return o;
}

/// A checkpoint's times: each part determines coefficients of its own.
void add_saved(std::vector<Observation>& out, const FitRun& run, int index) {
  if (!run.saved) return;
  const std::pair<const char*, double CheckpointPrice::*> parts[] = {{"checkpoint copied", &CheckpointPrice::copy},
                                                                     {"checkpoint written", &CheckpointPrice::write},
                                                                     {"checkpoint named", &CheckpointPrice::commit}};
  for (const auto& [what, part] : parts) {
    Observation o;
    o.run = index;
    o.what = what;
    o.count = 1;
    o.saving = part;
    o.size = run.saved->size;
    o.seconds = run.saved->seconds.*part;
    if (o.seconds > 0) out.push_back(std::move(o));
  }
}

std::string words(const models::Op& op) {
  using K = models::OpKind;
  if (op.kind == K::matmul)
    return fmt::format("matmul {}x{}x{}{}{}{}", op.m, op.n, op.k, op.trans_a ? " At" : "", op.trans_b ? " Bt" : "",
                       op.accumulate ? " +=" : "");
  if (op.kind == K::attention || op.kind == K::attention_grad)
    return fmt::format("{} {}x{}x{}x{}", models::name_of(op.kind), op.batch, op.heads, op.sequence, op.head_dim);
  return op.n > 0 ? fmt::format("{} {}x{}", models::name_of(op.kind), op.n, op.m)
                  : fmt::format("{} {}", models::name_of(op.kind), op.m);
}

/// The operators of a step whose total time is known: their own times, scaled to add up to it (a span is typical of the
/// training steps kept, an operator's time is over all of them).
void add_operators(std::vector<Observation>& out, Observation& whole,
                   const std::vector<const plan::OperatorTime*>& operators) {
  double sum = 0;
  for (const plan::OperatorTime* one : operators) sum += one->seconds;
  if (sum <= 0) return;
  for (const plan::OperatorTime* one : operators) {
    if (one->seconds <= 0) continue;
    Observation o = whole;
    o.op = &whole.step->ops[static_cast<std::size_t>(one->op)];
    o.what = words(*o.op);
    o.seconds = one->seconds * whole.seconds / sum;
    out.push_back(std::move(o));
  }
  whole.in_parts = true;
}

}  // namespace

std::vector<Observation> observations_of(const FitRun& run, int index, int skip_iterations, const Stack& stack) {
  struct Samples {
    std::vector<double> seconds;
    int rank = 0;
  };
  const std::set<std::int32_t> iterations = typical_iterations(run.timeline.spans, skip_iterations);
  const Computing busy(run);
  std::map<std::tuple<int, int, int>, Samples> sums;  // class, block, step in the block
  std::set<std::int32_t> ranks;
  for (const Span& s : run.timeline.spans) {
    if (!iterations.count(s.iteration)) continue;
    ranks.insert(s.rank);
    const plan::RankClass& c = run.schedule.class_of(s.rank);
    const int block = c.program[static_cast<std::size_t>(s.at.entry)].block;
    Samples& sum = sums[{static_cast<int>(&c - run.schedule.classes.data()), block, s.at.step}];
    const plan::Step& step = step_of(c, s.at);
    const bool stands_still = step.kind != plan::StepKind::compute && !stack.overlaps(step.stream);
    const double computed = stands_still ? busy.between(s.rank, s.iteration, s.start, s.end) : 0;
    sum.seconds.push_back(std::max(0.0, s.end - s.start - computed));
    sum.rank = s.rank;
  }
  // Operators grouped by their step.
  std::map<std::tuple<int, int, int>, std::vector<const plan::OperatorTime*>> operators;
  for (const plan::OperatorTime& o : run.timeline.operators) operators[{o.rank_class, o.block, o.step}].push_back(&o);
  std::vector<Observation> out;
  const double lines = std::max(1.0, static_cast<double>(ranks.size() * iterations.size()));
  for (const auto& [key, sum] : sums) {
    const auto& [class_index, block, step_index] = key;
    const plan::RankClass& c = run.schedule.classes[static_cast<std::size_t>(class_index)];
    const plan::Step& step = c.blocks[static_cast<std::size_t>(block)].steps[static_cast<std::size_t>(step_index)];
    if (step.kind == plan::StepKind::send) continue;  // the receive sees the whole transfer
    Observation o;
    o.run = index;
    o.step = &step;
    o.alone = run.schedule.spec.mesh.ranks() == 1;
    o.rank_class = &c;
    o.what = words(run.schedule, step);
    o.seconds = trimmed_mean(sum.seconds);
    o.count = static_cast<double>(sum.seconds.size()) / lines;
    if (step.kind == plan::StepKind::collective) {
      o.members = run.schedule.groups[step.group].members(sum.rank);
      if (o.members.size() < 2) continue;
    }
    if (step.kind == plan::StepKind::recv) {
      const int stride = run.schedule.spec.mesh.ranks_per_stage();
      o.members = {sum.rank + step.peer * stride, sum.rank};
    }
    if (o.seconds <= 0) continue;
    const auto parts = operators.find(key);
    if (parts != operators.end()) add_operators(out, o, parts->second);
    out.push_back(std::move(o));
  }
  // Stages wait for each other for other reasons too.
  if (run.schedule.classes.size() == 1) {
    Observation waiting = waiting_of(run, index, iterations);
    if (waiting.seconds > 0) out.push_back(std::move(waiting));
  }
  Observation gap = gaps_of(run, index, iterations);
  if (gap.seconds > 0) out.push_back(std::move(gap));
  Observation rest = rest_of(run, index, iterations);
  if (rest.seconds > 0 && rest.steps > 0) out.push_back(std::move(rest));
  if (!out.empty()) add_saved(out, run, index);
  return out;
}

}  // namespace orrery::cost
