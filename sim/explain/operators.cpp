// Sums operators over the programs of all classes.
#include "sim/explain/operators.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

using Rows = std::map<std::pair<std::string, std::string>, cost::OperatorRow>;

const char* pass_of(plan::Phase phase) {
  using plan::Phase;
  switch (phase) {
    case Phase::input:
    case Phase::forward: return "forward";
    case Phase::recompute: return "recompute";
    case Phase::backward: return "backward";
    case Phase::parameter_gather:
    case Phase::gradient_reduce:
    case Phase::optimizer:
    case Phase::reporting: return "optimizer";
  }
  return "";
}

void add(Rows& rows, double& masked, const plan::Step& step, double times, const cost::Pricing& pricing,
         const cost::MeanShare& mean) {
  for (const models::Op& fullest : step.ops) {
    const models::Op op = cost::of_mean_rank(fullest, mean);
    cost::OperatorRow& row = rows[{models::name_of(op.kind), pass_of(step.phase)}];
    const double flops = models::flops_of(op);
    row.count += times;
    row.seconds += times * pricing.op_time(op).value;
    row.flops += times * flops;
    row.bytes += times * models::bytes_of(op);
    if (step.phase == plan::Phase::forward) masked += times * (models::flops_of(op, true) - flops);
  }
}

}  // namespace

cost::Operators operators_of(const plan::Schedule& schedule, const cost::Pricing& pricing,
                             const cost::MeanShare& mean) {
  constexpr double kPasses = 3;  // MFU counts forward times 3
  Rows rows;
  double masked = 0, ranks = 0;
  for (const plan::RankClass& one : schedule.classes) ranks += one.count;
  for (const plan::RankClass& one : schedule.classes) {
    std::vector<double> times(one.blocks.size(), 0);
    for (const plan::Entry& entry : one.program)
      if (!entry.opening) ++times[static_cast<std::size_t>(entry.block)];
    for (std::size_t b = 0; b < one.blocks.size(); ++b)
      for (const plan::Step& step : one.blocks[b].steps)
        if (times[b] > 0 && step.kind == plan::StepKind::compute && !step.on_host && step.runs_in(plan::kLateStep))
          add(rows, masked, step, times[b] * one.count / ranks, pricing, mean);
  }
  cost::Operators out;
  for (auto& [key, row] : rows) {
    row.name = key.first, row.phase = key.second;
    out.rows.push_back(std::move(row));
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  out.masked_flops = kPasses * masked;
  out.peak_flops = pricing.cluster().peak(models::name_of(schedule.spec.numerics.precision)).value;
  out.bandwidth = pricing.cluster().device().memory_bandwidth.value;
  return out;
}

}  // namespace orrery::sim
