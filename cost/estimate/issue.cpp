/// Equal layers are not replayed one by one: each shifts host and device by the same amount.
#include "cost/estimate/issue.h"

#include <algorithm>

namespace orrery::cost {

void IssueClock::run(const std::vector<const Pass*>& passes, std::int64_t count, double wait) {
  if (count < 1) return;
  double host = 0, device = wait, following = -std::numeric_limits<double>::infinity();  // of one layer
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

namespace {

double seconds_of(const Pass& pass) {
  return pass.compute + pass.recomputed + pass.messages;
}
/// Of one layer of the run.
double wait_of(const std::vector<double>& waits, const std::vector<LayerRun>& layers, std::size_t run) {
  return waits.empty() ? 0 : waits[run] / static_cast<double>(layers[run].count);
}

}  // namespace

double forward_seconds(const LayerCosts& layer) {
  return seconds_of(layer.forward);
}
double backward_seconds(const LayerCosts& layer) {
  const bool again = layer.recomputation == plan::Recompute::full;
  return seconds_of(layer.backward) + (again ? seconds_of(layer.recompute) : 0);
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

Issue forward_issue(const std::vector<LayerRun>& layers, double message_host, double left,
                    const std::vector<double>& waits) {
  IssueClock clock(message_host, left);
  for (std::size_t i = 0; i < layers.size(); ++i)
    clock.run({&layers[i].costs->forward}, layers[i].count, wait_of(waits, layers, i));
  return {clock.host(), clock.following()};
}

Issue backward_issue(const std::vector<LayerRun>& layers, double message_host, double left, double prelude,
                     const std::vector<double>& waits) {
  IssueClock ahead(message_host, left), rest(message_host, left);
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerRun& run = layers[i];
    const Pass* again = run_ahead(*run.costs);
    const double wait = wait_of(waits, layers, i);
    std::int64_t count = run.count;
    if (again && i + 1 == layers.size()) {
      ahead.run({again}, 1);
      rest.run({&run.costs->backward}, 1, wait);
      --count;
    }
    std::vector<const Pass*> passes{&run.costs->backward};
    if (again) passes.insert(passes.begin(), again);
    rest.run(passes, count, wait);
  }
  return {rest.host(), rest.following(), ahead.host(), ahead.following(), prelude};
}

}  // namespace orrery::cost
