#pragma once
/// The host's lead over the device within a pass: the device waits for the host only if an operator is not issued yet.
/// Private to cost/.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/pipeline.h"

namespace orrery::cost {

/// Sums passes over layers as the replay does: an operator ends once it has been issued and the device has run it after
/// the previous one.
class IssueClock {
 public:
  /// `message_host`: seconds to issue a message of the tensor group. `exchange_left`: share of exchanges that counts.
  IssueClock(double message_host, double exchange_left) : message_host_(message_host), left_(exchange_left) {}
  /// Runs the passes one after another over each of `count` equal layers. `wait`: seconds for which the device waits
  /// before each, and the host does not.
  void run(const std::vector<const Pass*>& passes, std::int64_t count, double wait = 0);
  [[nodiscard]] double host() const { return host_; }
  /// Seconds from the host's start until the device ends, if it waits only for the host; 0 if nothing ran.
  [[nodiscard]] double following() const { return host_ > 0 ? following_ : 0; }

 private:
  double message_host_, left_;
  double host_ = 0, following_ = -std::numeric_limits<double>::infinity();
};

/// Device seconds of the passes over one layer; of the backward one, with what is recomputed.
[[nodiscard]] double forward_seconds(const LayerCosts& layer);
[[nodiscard]] double backward_seconds(const LayerCosts& layer);

/// The pass that the first layer of a backward pass recomputes before it reads the gradient; null if there is none.
[[nodiscard]] const Pass* run_ahead(const LayerCosts& top);

/// The host's part of the passes over a chunk; `prelude`: seconds of what runs ahead of the received gradient;
/// `waits`: for which each run's layers wait in the pass, all together; may be empty.
[[nodiscard]] Issue forward_issue(const std::vector<LayerRun>& layers, double message_host, double left,
                                  const std::vector<double>& waits);
[[nodiscard]] Issue backward_issue(const std::vector<LayerRun>& layers, double message_host, double left,
                                   double prelude, const std::vector<double>& waits);

}  // namespace orrery::cost
