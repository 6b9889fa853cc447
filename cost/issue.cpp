/// Equal layers are not walked one by one: each shifts host and device by the same.
#include "cost/issue.h"

#include <algorithm>

#include "cost/pipeline.h"

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
  // The device that waits for the i-th layer's issue runs those behind it at its own pace: of all i the first or the
  // last is the longest.
  const auto n = static_cast<double>(count);
  following_ = std::max(following_ + n * device, host_ + following + (n - 1) * std::max(host, device));
  host_ += n * host;
}

double issued_end(const Issue& issue, double start, double seconds, double arrived, double& issued) {
  const double ahead = std::max(start + issue.ahead_device, issued + issue.ahead_following);
  issued = std::max(issued + issue.ahead_host, arrived);
  const double end = std::max(ahead + seconds - issue.ahead_device, issued + issue.following);
  issued += issue.host;
  return end;
}

}  // namespace orrery::cost
