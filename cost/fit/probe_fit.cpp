/// Converts probed times to observations of cost/fit/fit.h.
#include "cost/fit/probe_fit.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <numeric>

#include "cost/fit/observations.h"

namespace orrery::cost {

namespace {

/// The steps that observations point to, as in a schedule.
struct ProbedSteps {
  std::deque<plan::Step> steps;
  std::deque<plan::RankClass> classes;
};

Observation observe(const ProbedOperator& one, ProbedSteps& steps) {
  plan::Step step;
  step.kind = plan::StepKind::compute;
  step.ops = {one.op};
  steps.steps.push_back(std::move(step));
  Observation o;
  o.run = one.workload;
  o.step = &steps.steps.back();
  o.alone = true;
  o.seconds = one.seconds;
  o.count = one.count;
  o.what = models::name_of(one.op.kind);
  return o;
}

/// `step` moving `bytes` from one buffer; small messages count as much as large ones.
Observation moving(plan::Step step, double bytes, double seconds, int run, ProbedSteps& steps) {
  constexpr double kFloat = 4;
  plan::RankClass rank_class;
  plan::Buffer buffer;
  buffer.elements = static_cast<std::int64_t>(bytes / kFloat);
  const plan::BufferId only = rank_class.buffers.append(buffer);
  steps.classes.push_back(std::move(rank_class));
  step.source = step.target = {only, 0, buffer.elements};
  steps.steps.push_back(std::move(step));
  Observation o;
  o.run = run;
  o.step = &steps.steps.back();
  o.rank_class = &steps.classes.back();
  o.seconds = seconds;
  o.count = 1 / seconds;
  return o;
}

Observation observe(const ProbedMessage& one, int run, ProbedSteps& steps) {
  plan::Step step;
  step.kind = one.send ? plan::StepKind::send : plan::StepKind::collective;
  step.collective = one.kind;
  Observation o = moving(std::move(step), one.bytes, one.seconds, run, steps);
  o.members.resize(static_cast<std::size_t>(one.ranks));
  std::iota(o.members.begin(), o.members.end(), 0);
  o.what = one.send ? "send" : plan::name_of(one.kind);
  return o;
}

Observation observe(const ProbedCopy& one, int run, ProbedSteps& steps) {
  plan::Step step;
  step.kind = plan::StepKind::copy;
  step.stream = one.to_host ? plan::Stream::to_host : plan::Stream::from_host;
  Observation o = moving(std::move(step), one.bytes, one.seconds, run, steps);
  o.what = one.to_host ? "copy to host" : "copy from host";
  return o;
}

/// `before` with the spill size, among some powers of four, that fits the messages best; without one if none improves
/// the fit by a tenth.
Pricing with_spill(const Pricing& before, const std::vector<Observation>& messages, const FitOptions& options) {
  constexpr double kFirst = 1 << 18, kLast = 1 << 24, kStep = 4, kStart = 3e9, kWorthIt = 0.9;
  const auto with = [&](double size) {
    Calibration c;
    if (size > 0) {
      const std::string source =
          fmt::format("measured {}: where the curve of messages bends (orrery probe)", options.date);
      c.set("network.spill_size", size, source);
      for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send"})
        c.set(fmt::format("network.{}.spill_bandwidth", operation), kStart, source);
    }
    return Pricing(before.shared_cluster(), before.stack(), {before.calibration(), c});
  };
  // The error of logarithms: a relative error counts the same for a large and a small message.
  const auto error_of = [&](double size) {
    const Pricing start = with(size);
    const Fitted fitted = fit_observations(messages, start, options, "");
    const Pricing after(before.shared_cluster(), before.stack(), {start.calibration(), fitted.calibration});
    double sum = 0;
    for (const Observation& o : messages) sum += std::abs(std::log(predicted(o, after) / o.seconds));
    return sum / static_cast<double>(messages.size());
  };
  double best = 0;
  if (messages.empty()) return with(best);
  double least = kWorthIt * error_of(0);
  for (double size = kFirst; size <= kLast; size *= kStep) {
    const double error = error_of(size);
    if (error >= least) continue;
    least = error;
    best = size;
  }
  return with(best);
}

}  // namespace

base::Result<Fitted> fit_probe(const Probed& probed, const Pricing& before, const FitOptions& options) {
  ProbedSteps steps;
  std::vector<Observation> all;
  int runs = 0;
  for (const ProbedOperator& one : probed.operators) {
    if (one.seconds <= 0) continue;
    all.push_back(observe(one, steps));
    runs = std::max(runs, one.workload + 1);
  }
  if (all.empty()) return base::fail("F04", "the probe has timed no operators", "run `orrery probe --measure` again");
  const std::size_t operators = all.size();
  std::vector<Observation> messages;
  for (const ProbedMessage& one : probed.messages)
    if (one.seconds > 0) messages.push_back(observe(one, runs, steps));
  all.insert(all.end(), messages.begin(), messages.end());
  std::size_t copies = 0;
  for (const ProbedCopy& one : probed.copies) {
    if (one.seconds <= 0) continue;
    all.push_back(observe(one, runs + 1, steps));
    ++copies;
  }
  const std::string source =
      fmt::format("measured {}: {} operators, {} messages and {} copies one by one (orrery probe)", options.date,
                  operators, messages.size(), copies);
  const bool gpu = before.cluster().device().kind != clusters::DeviceKind::cpu;
  // GPU messages have no spill size: NCCL's protocols have limits of their own (cost/network/collectives.h).
  const Pricing priced = with_spill(before, gpu ? std::vector<Observation>{} : messages, options);
  Fitted out = fit_observations(all, priced, options, source);
  const auto& known = priced.calibration().parameters;
  if (const auto size = known.find("network.spill_size"); size != known.end())
    out.calibration.parameters[size->first] = size->second;
  const auto take = [&](const char* name, std::optional<double> value, const char* what) {
    if (!value) return;
    const std::string from = fmt::format("measured {}: {} (orrery probe)", options.date, what);
    out.calibration.set(name, *value, from);
    out.result.parameters.push_back({name, before.calibration().get(name, 0), *value, "", from});
  };
  take("device.neighbour_slowdown", probed.neighbour_slowdown,
       "time of a rank's layers while all ranks compute, over the time alone");
  take("stack.rank_jitter", probed.rank_jitter, "the slowest rank's time over the mean, while all ranks compute");
  return out;
}

}  // namespace orrery::cost
