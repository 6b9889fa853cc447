/// Groups of rows, repeats of one plan, regret and rank correlation.
#include "sim/validate/which_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/ensure.h"

namespace orrery::sim {

namespace {

std::string text_of(const std::optional<std::int64_t>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

std::string text_of(const std::optional<bool>& value) {
  return value ? (*value ? "yes" : "no") : "-";
}

/// All properties that a plan does not determine.
std::string task_of(const Setup& s) {
  std::string key = fmt::format("{}|{}|{}|{}|{}|{}", s.source, s.stack, s.gpu_type, s.precision, s.family,
                                s.inter_node_gbps.value_or(0));
  if (!s.layers || !s.hidden) key += "|" + s.model;
  for (const auto* value : {&s.layers,     &s.hidden,       &s.heads,      &s.kv_heads,       &s.head_dim,
                            &s.ffn_hidden, &s.vocab,        &s.sequence,   &s.experts,        &s.experts_per_token,
                            &s.moe_every,  &s.expert_ffn,   &s.further,    &s.gpus,           &s.gpus_per_node,
                            &s.batch,      &s.tables.count, &s.tables.dim, &s.tables.lookups, &s.tables.cross_layers})
    key += "|" + text_of(*value);
  return key;
}

/// What is trained, in words. Each kind of model has other sizes.
std::string model_of(const Setup& s) {
  if (s.family == kRecommender) return fmt::format("{} {} tables", s.family, text_of(s.tables.count));
  if (!s.layers || !s.hidden) return fmt::format("{}, sequence {}", s.model, text_of(s.sequence));
  return fmt::format("{} {} x {}, sequence {}", s.family, text_of(s.layers), text_of(s.hidden), text_of(s.sequence));
}

/// All properties of the plan.
std::string plan_of(const Setup& s) {
  std::string key = fmt::format("{}|{}|{}|{}", s.recompute, s.schedule, s.offload, s.fsdp_sharding);
  for (const auto* value : {&s.tensor, &s.pipeline, &s.data, &s.context, &s.expert, &s.virtual_stages, &s.zero_stage,
                            &s.micro_batch, &s.zero_group})
    key += "|" + text_of(*value);
  for (const auto* value : {&s.sequence_parallel, &s.flash_attention, &s.interleaved}) key += "|" + text_of(*value);
  return key;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t j = i; j < end; ++j) out[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return out;
}

struct Candidate {
  std::string plan;
  double predicted = 0;
  std::vector<double> measured;
};

struct Task {
  std::string source, what;
  std::vector<std::string> order;  ///< by plan
  std::map<std::string, Candidate> candidates;
};

std::size_t least(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
}

cost::PlanGroup judged(const Task& task) {
  cost::PlanGroup out;
  out.source = task.source;
  out.what = task.what;
  out.plans = task.candidates.size();
  std::vector<double> predicted, measured;
  for (const std::string& key : task.order) {
    const Candidate& c = task.candidates.at(key);
    out.rows += c.measured.size();
    predicted.push_back(c.predicted);
    measured.push_back(median(c.measured));
  }
  const std::size_t best = least(measured);
  // If several plans are predicted equally fast, the choice is open: to be fair, take the slowest.
  std::size_t chosen = least(predicted);
  constexpr double kAlike = 1 + 1e-9;
  for (std::size_t i = 0, first = chosen; i < predicted.size(); ++i)
    if (predicted[i] <= predicted[first] * kAlike && measured[i] > measured[chosen]) chosen = i;
  out.regret = measured[chosen] / measured[best];
  out.rank_correlation = rank_correlation(predicted, measured);
  out.predicted_best = task.candidates.at(task.order[chosen]).plan;
  out.measured_best = task.candidates.at(task.order[best]).plan;
  return out;
}

}  // namespace

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  ENSURE(a.size() == b.size(), "{} values against {}", a.size(), b.size());
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : std::numeric_limits<double>::quiet_NaN();
}

std::vector<cost::PlanGroup> which_plan(const std::vector<Row>& rows, const Cases& cases,
                                        const std::vector<double>& seconds) {
  ENSURE(seconds.size() == cases.ready.size(), "a prediction for each case");
  std::vector<std::string> order;
  std::map<std::string, Task> tasks;
  for (std::size_t i = 0; i < cases.ready.size(); ++i) {
    const Row& row = rows[cases.ready[i].row];
    if (!row.measured.seconds) continue;
    const Setup& s = row.setup;
    const std::string key = task_of(s);
    Task& task = tasks[key];
    if (task.order.empty()) {
      order.push_back(key);
      task.source = s.source;
      task.what = fmt::format("{}, batch {}, {} {}", model_of(s), *s.batch, *s.gpus, s.gpu_type);
    }
    const std::string plan = plan_of(s);
    Candidate& candidate = task.candidates[plan];
    if (candidate.measured.empty()) {
      task.order.push_back(plan);
      candidate.plan = plan::describe(cases.ready[i].subject.plan.spec());
      candidate.predicted = seconds[i];
    }
    candidate.measured.push_back(*row.measured.seconds);
  }
  std::vector<cost::PlanGroup> out;
  for (const std::string& key : order)
    if (tasks.at(key).candidates.size() >= kLeastPlans) out.push_back(judged(tasks.at(key)));
  return out;
}

}  // namespace orrery::sim
