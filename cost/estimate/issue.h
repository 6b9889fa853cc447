#pragma once
/// The host's lead over the device within a pass: neither waits for the other but where an operator is not issued yet.
/// Private to cost/.
#include <cstdint>
#include <limits>
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/pipeline.h"

namespace orrery::cost {

/// Sums up passes over layers as the replay walks them: an operator ends when it has been issued and when the device
/// has run it behind the one before.
class IssueClock {
 public:
  /// `message_host`: seconds to issue a message within the tensor group; of exchanges `exchange_left` counts.
  IssueClock(double message_host, double exchange_left) : message_host_(message_host), left_(exchange_left) {}
  /// The passes one after another over each of `count` equal layers.
  void run(const std::vector<const Pass*>& passes, std::int64_t count);
  [[nodiscard]] double host() const { return host_; }
  /// Seconds from the host's begin until the device has ended, if it waits for nothing but the host; 0 of nothing.
  [[nodiscard]] double following() const { return host_ > 0 ? following_ : 0; }

 private:
  double message_host_, left_;
  double host_ = 0, following_ = -std::numeric_limits<double>::infinity();
};

/// What runs again of the layer that a backward pass begins with, before it reads the gradient; null of most.
[[nodiscard]] const Pass* run_ahead(const LayerCosts& top);

/// Of the passes over a chunk; `prelude`: seconds of what runs ahead.
[[nodiscard]] Issue forward_issue(const std::vector<LayerRun>& layers, double message_host, double left);
[[nodiscard]] Issue backward_issue(const std::vector<LayerRun>& layers, double message_host, double left,
                                   double prelude);

}  // namespace orrery::cost
