/// Equal layers are not walked one by one: each shifts host and device by the same.
#include "cost/issue.h"

#include <algorithm>

namespace orrery::cost {

void IssueClock::run(const std::vector<const Pass*>& passes, std::int64_t count) {
  if (count < 1) return;
  // Of one layer: what each takes, and when the device ends that follows the host alone.
  double host = 0, device = 0, following = 0;
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
  device_ = std::max(device_ + n * device, host_ + following + (n - 1) * std::max(host, device));
  host_ += n * host;
}

}  // namespace orrery::cost
