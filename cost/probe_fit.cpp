/// Probed times as observations of cost/fit.h.
#include "cost/probe_fit.h"

#include <fmt/format.h>

#include <deque>
#include <numeric>

#include "cost/observations.h"

namespace orrery::cost {

namespace {

/// Observations point at steps of a schedule; these are their steps.
struct Steps {
  std::deque<plan::Step> steps;
  std::deque<plan::RankClass> classes;
};

Observation observe(const ProbedOperator& one, Steps& steps) {
  plan::Step step;
  step.kind = plan::StepKind::compute;
  step.ops = {one.op};
  steps.steps.push_back(std::move(step));
  Observation o;
  o.run = one.workload;
  o.step = &steps.steps.back();
  o.seconds = one.seconds;
  o.count = one.count;
  o.what = models::name_of(one.op.kind);
  return o;
}

Observation observe(const ProbedMessage& one, int run, Steps& steps) {
  constexpr double kFloat = 4;
  plan::RankClass rank_class;
  plan::Buffer buffer;
  buffer.elements = static_cast<std::int64_t>(one.bytes / kFloat);
  rank_class.buffers = {buffer};
  steps.classes.push_back(std::move(rank_class));
  plan::Step step;
  step.kind = one.send ? plan::StepKind::send : plan::StepKind::collective;
  step.collective = one.kind;
  step.source = step.target = {0, 0, buffer.elements};
  steps.steps.push_back(std::move(step));
  Observation o;
  o.run = run;
  o.step = &steps.steps.back();
  o.rank_class = &steps.classes.back();
  o.members.resize(static_cast<std::size_t>(one.ranks));
  std::iota(o.members.begin(), o.members.end(), 0);
  o.seconds = one.seconds;
  o.count = 1 / one.seconds;  // a small message counts as much as a large one
  o.what = one.send ? "send" : plan::name_of(one.kind);
  return o;
}

}  // namespace

base::Result<Fitted> fit_probe(const Probed& probed, const Pricing& before, const FitOptions& options) {
  Steps steps;
  std::vector<Observation> all;
  int runs = 0;
  for (const ProbedOperator& one : probed.operators) {
    if (one.seconds <= 0) continue;
    all.push_back(observe(one, steps));
    runs = std::max(runs, one.workload + 1);
  }
  if (all.empty()) return base::fail("F04", "the probe has timed no operators", "run `orrery probe --measure` again");
  const std::size_t operators = all.size();
  for (const ProbedMessage& one : probed.messages)
    if (one.seconds > 0) all.push_back(observe(one, runs, steps));
  const std::string source = fmt::format("measured {}: {} operators and {} messages one by one (orrery probe)",
                                         options.date, operators, all.size() - operators);
  Fitted out = fit_observations(all, before, options, source);
  if (probed.slowdown >= 0) {
    const char* name = "stack.rank_jitter";
    const double old = before.calibration().get(name, 0);
    const std::string from = fmt::format(
        "measured {}: the slowest of all ranks computing at once over one alone (orrery probe)", options.date);
    out.calibration.set(name, probed.slowdown, from);
    out.result.parameters.push_back({name, old, probed.slowdown, "", from});
  }
  return out;
}

}  // namespace orrery::cost
