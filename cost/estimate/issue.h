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
  /// Runs the passes one after another over each of `count` equal layers.
  void run(const std::vector<const Pass*>& passes, std::int64_t count);
  [[nodiscard]] double host() const { return host_; }
  /// Seconds from the host's start until the device ends, if it waits only for the host; 0 if nothing ran.
  [[nodiscard]] double following() const { return host_ > 0 ? following_ : 0; }

 private:
  double message_host_, left_;
  double host_ = 0, following_ = -std::numeric_limits<double>::infinity();
};

/// Seconds of the passes over one layer where messages or copies run beside them: the device's, or the host's where
/// that is the slower.
class Pace {
 public:
  /// Of a chunk. Without other stages to wait for, a host that is ahead in one pass may be behind in the other.
  Pace(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, const Pricing& pricing);
  [[nodiscard]] double forward(const LayerCosts& layer) const { return of(layer.forward); }
  /// With what is recomputed.
  [[nodiscard]] double backward(const LayerCosts& layer) const;

 private:
  [[nodiscard]] static double device(const Pass& pass) { return pass.compute + pass.recomputed + pass.messages; }
  [[nodiscard]] double host(const Pass& pass) const { return pass.host + message_host_ * pass.tensor_messages; }
  [[nodiscard]] double of(const Pass& pass) const {
    return issues_ ? std::max(device(pass), host(pass)) : device(pass);
  }
  double message_host_;
  bool issues_ = true;
};

/// The pass that the first layer of a backward pass recomputes before it reads the gradient; null if there is none.
[[nodiscard]] const Pass* run_ahead(const LayerCosts& top);

/// The host's part of the passes over a chunk; `prelude`: seconds of what runs ahead of the received gradient.
[[nodiscard]] Issue forward_issue(const std::vector<LayerRun>& layers, double message_host, double left);
[[nodiscard]] Issue backward_issue(const std::vector<LayerRun>& layers, double message_host, double left,
                                   double prelude);

}  // namespace orrery::cost
