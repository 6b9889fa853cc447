/// Derived figures of a Prediction, and predictions made from estimates.
#include "cost/estimate/estimate.h"
#include "cost/estimate/power.h"
#include "models/layers/counts.h"
#include "plan/spec/placement.h"

namespace orrery::cost {

void derive(Prediction& p, const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  const clusters::Cluster& cluster = plan.cluster();
  const clusters::Device& device = cluster.device();
  p.memory_capacity_bytes = device.memory.value;
  p.on_torus = plan::placement_text(cluster, spec);
  if (p.step_time_s <= 0) return;
  const double peak = cluster.peak(models::name_of(spec.numerics.precision)).value * cluster.size();
  if (peak > 0)
    p.mfu = models::flops_per_step(plan.model(), spec.shape.batch, spec.shape.sequence) / (p.step_time_s * peak);
  p.tokens_per_s = static_cast<double>(spec.shape.batch * spec.shape.sequence) / p.step_time_s;
  constexpr double kSecondsPerHour = 3600;
  p.cost_per_step_usd = device.price.value * cluster.size() * p.step_time_s / kSecondsPerHour;
  p.energy = energy_of(p.breakdown, p.step_time_s, cluster);
  p.energy_per_step_j = p.energy.total();
}

std::vector<MemoryRow> Estimator::memory(const plan::Plan& plan) {
  std::vector<MemoryRow> rows;
  for (const plan::StageId s : plan.spec().mesh.stages()) {
    const StageMemory m = memory(plan, s);
    MemoryRow row;
    row.stage = s;
    row.total = m.total();
    row.host = m.host;
    row.nvme = m.nvme;
    row.by_purpose = {
        {"parameters", m.parameters},   {"gradients", m.gradients},         {"optimizer_states", m.optimizer_states},
        {"activations", m.activations}, {"workspace", m.workspace},         {"communication", m.communication},
        {"scalars", m.input},           {"fragmentation", m.fragmentation}, {"software", m.software}};
    std::erase_if(row.by_purpose, [](const auto& entry) { return entry.second == 0; });
    rows.push_back(std::move(row));
  }
  return rows;
}

Prediction Estimator::predict(const plan::Plan& plan, const Estimate& known) {
  Prediction p;
  p.spec = plan.spec();
  p.step_time_s = known.step_time;
  p.memory_peak_bytes = known.memory_peak;
  p.breakdown = known.breakdown;
  p.bubble_fraction = known.bubble / known.step_time;
  p.exposed_communication_s = known.breakdown.exposed();
  p.memory = memory(plan);
  derive(p, plan);
  return p;
}

}  // namespace orrery::cost
