#pragma once
/// Costs of layers by all that they depend on, kept once for all estimators of a model and its prices.
/// Private to cost/estimate/.
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "cost/estimate/estimate.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/layer_key.h"

namespace orrery::cost {

class LayerStore {
 public:
  /// Of whom a layer's messages go to: the number of ranks with which its groups share links, the lowest of theirs, and
  /// where they run.
  using Place = std::tuple<int, int, plan::MeshAxes>;

  explicit LayerStore(std::unique_ptr<Lock> lock) : lock_(std::move(lock)) {}
  /// Makes what is not known yet. Two threads may make the same; the first one's stays. References stay valid.
  template <class Make>
  const LayerCosts& of(const LayerKey& key, const Make& make) {
    return of(alone_, key, make);
  }
  /// The same with messages.
  template <class Make>
  const LayerCosts& of(const LayerCosts& alone, Place place, const Make& make) {
    return of(placed_, std::make_pair(&alone, place), make);
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
  template <class Key, class Make>
  const LayerCosts& of(std::map<Key, LayerCosts>& known, const Key& key, const Make& make) {
    {
      const Held held(lock_.get());
      if (const auto found = known.find(key); found != known.end()) return found->second;
    }
    LayerCosts made = make();
    const Held held(lock_.get());
    return known.emplace(key, std::move(made)).first->second;
  }

  std::unique_ptr<Lock> lock_;  ///< null: one thread
  std::map<LayerKey, LayerCosts> alone_;
  std::map<std::pair<const LayerCosts*, Place>, LayerCosts> placed_;
};

}  // namespace orrery::cost
