#pragma once
/// Costs of layers by all that they depend on, kept once for all estimators of a model and its prices.
/// Private to cost/estimate/.
#include <map>
#include <memory>
#include <utility>

#include "cost/estimate/estimate.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/layer_key.h"

namespace orrery::cost {

class LayerStore {
 public:
  explicit LayerStore(std::unique_ptr<Lock> lock) : lock_(std::move(lock)) {}
  /// Makes what is not known yet. Two threads may make the same; the first one's stays. References stay valid.
  template <class Make>
  const LayerCosts& of(const LayerKey& key, bool priced, const Make& make) {
    std::map<LayerKey, LayerCosts>& known = priced ? priced_ : sized_;
    if (const LayerCosts* found = find(known, key)) return *found;
    LayerCosts made = make();
    const Held held(lock_.get());
    return known.emplace(key, std::move(made)).first->second;
  }

 private:
  class Held {
   public:
    explicit Held(Lock* lock) : lock_(lock) {
      if (lock_ != nullptr) lock_->lock();
    }
    ~Held() {
      if (lock_ != nullptr) lock_->unlock();
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Lock* lock_;
  };
  const LayerCosts* find(const std::map<LayerKey, LayerCosts>& known, const LayerKey& key) const {
    const Held held(lock_.get());
    const auto found = known.find(key);
    return found == known.end() ? nullptr : &found->second;
  }

  std::unique_ptr<Lock> lock_;                     ///< null: one thread
  std::map<LayerKey, LayerCosts> sized_, priced_;  ///< LayerChoices::priced
};

}  // namespace orrery::cost
