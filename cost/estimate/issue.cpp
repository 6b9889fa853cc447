/// Equal layers are not replayed one by one: each shifts host and device by the same amount.
#include "cost/estimate/issue.h"

#include <algorithm>

namespace orrery::cost {

void IssueClock::run(const std::vector<const Pass*>& passes, std::int64_t count) {
  if (count < 1) return;
  double host = 0, device = 0, following = -std::numeric_limits<double>::infinity();  // of one layer
  for (const Pass* pass : passes)
    for (const Segment& s : pass->segments) {
      const double busy = s.device + left_ * s.exchange;
      host += s.host + message_host_ * s.messages;
      device += busy;
      following = std::max(following + busy, host);
    }
  // If the device waits for the issue of the i-th layer, it runs the layers after it at its own pace; the maximum over
  // i is at the first or the last layer.
  const auto n = static_cast<double>(count);
  following_ = std::max(following_ + n * device, host_ + following + (n - 1) * std::max(host, device));
  host_ += n * host;
}

Pace::Pace(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const Pricing& pricing)
    : message_host_(pricing.message_host_time(spec.tensor, spec.pipeline > 1).value) {
  if (spec.pipeline > 1) return;
  double ahead = 0;
  for (const LayerRun& run : layers) {
    const LayerCosts& c = *run.costs;
    const auto count = static_cast<double>(run.count);
    for (const Pass* pass : {&c.forward, &c.backward}) ahead += count * (device(*pass) - host(*pass));
    if (c.recomputation == plan::Recompute::full) ahead += count * (device(c.recompute) - host(c.recompute));
  }
  issues_ = ahead < 0;
}

double Pace::backward(const LayerCosts& layer) const {
  const bool again = layer.recomputation == plan::Recompute::full;
  return of(layer.backward) + (again ? of(layer.recompute) : 0);
}

double issued_end(const Issue& issue, double start, double seconds, double arrived, double& issued) {
  const double ahead = std::max(start + issue.ahead_device, issued + issue.ahead_following);
  issued = std::max(issued + issue.ahead_host, arrived);
  const double end = std::max(ahead + seconds - issue.ahead_device, issued + issue.following);
  issued += issue.host;
  return end;
}

const Pass* run_ahead(const LayerCosts& top) {
  if (top.recomputation == plan::Recompute::full) return &top.recompute;
  return top.experts_again.steps > 0 ? &top.experts_again : nullptr;
}

Issue forward_issue(const std::vector<LayerRun>& layers, double message_host, double left) {
  IssueClock clock(message_host, left);
  for (const LayerRun& run : layers) clock.run({&run.costs->forward}, run.count);
  return {clock.host(), clock.following()};
}

Issue backward_issue(const std::vector<LayerRun>& layers, double message_host, double left, double prelude) {
  IssueClock ahead(message_host, left), rest(message_host, left);
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerRun& run = layers[i];
    const Pass* again = run_ahead(*run.costs);
    std::int64_t count = run.count;
    if (again && i + 1 == layers.size()) {
      ahead.run({again}, 1);
      rest.run({&run.costs->backward}, 1);
      --count;
    }
    std::vector<const Pass*> passes{&run.costs->backward};
    if (again) passes.insert(passes.begin(), again);
    rest.run(passes, count);
  }
  return {rest.host(), rest.following(), ahead.host(), ahead.following(), prelude};
}

}  // namespace orrery::cost
