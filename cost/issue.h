#pragma once
/// The host's lead over the device within a pass: neither waits for the other but where an operator is not issued yet.
/// Private to cost/.
#include <cstdint>
#include <vector>

#include "cost/layer_costs.h"

namespace orrery::cost {

/// Host and device from the moment at which the host may go on issuing, as the replay walks them: an operator ends when
/// it has been issued and when the device has run it behind the one before.
class IssueClock {
 public:
  /// `message_host`: seconds to issue a message within the tensor group; of exchanges `exchange_left` counts.
  IssueClock(double message_host, double exchange_left) : message_host_(message_host), left_(exchange_left) {}
  /// Device time that nothing is issued for.
  void wait(double seconds) { device_ += seconds; }
  /// The passes one after another over each of `count` equal layers.
  void run(const std::vector<const Pass*>& passes, std::int64_t count);
  /// When both have come to here.
  [[nodiscard]] double now() const { return device_; }

 private:
  double message_host_, left_;
  double host_ = 0, device_ = 0;
};

}  // namespace orrery::cost
