#pragma once
/// Costs of layers by all that they depend on, kept once for all estimators of a model and its prices. Thread-safe.
/// Private to cost/estimate/.
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "cost/estimate/layer_costs.h"
#include "cost/estimate/layer_key.h"

namespace orrery::cost {

class LayerStore {
 public:
  /// Makes what is not known yet. Two threads may make the same; the first one's stays. References stay valid.
  template <class Make>
  const LayerCosts& of(const LayerKey& key, bool priced, const Make& make) {
    std::map<LayerKey, LayerCosts>& known = priced ? priced_ : sized_;
    {
      const std::shared_lock reading(mutex_);
      if (const auto found = known.find(key); found != known.end()) return found->second;
    }
    LayerCosts made = make();
    const std::scoped_lock writing(mutex_);
    return known.emplace(key, std::move(made)).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::map<LayerKey, LayerCosts> sized_, priced_;  ///< LayerChoices::priced
};

}  // namespace orrery::cost
