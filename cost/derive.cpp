/// What a Prediction says beyond its step time and memory.
#include "cost/estimate.h"
#include "models/counts.h"

namespace orrery::cost {

void derive(Prediction& p, const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  const clusters::Cluster& cluster = plan.cluster();
  const clusters::Device& device = cluster.device();
  p.memory_capacity_bytes = device.memory.value;
  if (p.step_time_s <= 0) return;
  const double peak = cluster.peak(models::name_of(spec.precision)).value * cluster.size();
  if (peak > 0) p.mfu = models::flops_per_step(plan.model(), spec.batch, spec.sequence) / (p.step_time_s * peak);
  p.tokens_per_s = static_cast<double>(spec.batch * spec.sequence) / p.step_time_s;
  constexpr double kSecondsPerHour = 3600;
  p.cost_per_step_usd = device.price.value * cluster.size() * p.step_time_s / kSecondsPerHour;
  p.energy_per_step_j = device.power.value * cluster.size() * p.step_time_s;
}

}  // namespace orrery::cost
