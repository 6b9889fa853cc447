#pragma once
/// The closed form for a search, in which plans may have different prices. Private to sim/search/.
#include <memory>
#include <vector>

#include "clusters/cluster.h"
#include "cost/estimate/estimate.h"
#include "cost/prices/room.h"
#include "models/model.h"
#include "plan/spec/plan.h"
#include "sim/shared_links.h"

namespace orrery::sim {

using Model = std::shared_ptr<const models::Model>;
using Cluster = std::shared_ptr<const clusters::Cluster>;
/// The closed form with each plan's own prices. Not thread-safe.
class Estimators {
 public:
  /// `like`: the same in another thread, with which layers' costs are shared; null: none.
  Estimators(const Model& model, const cost::Prices& prices, const Estimators* like = nullptr) : prices_(prices) {
    for (const cost::Pricing& pricing : prices_.all()) {
      stores_.push_back(like != nullptr ? like->stores_[stores_.size()] : cost::make_layer_store());
      all_.emplace_back(model, pricing, shared_links(pricing), stores_.back());
    }
  }
  Estimators(const Estimators&) = delete;
  Estimators& operator=(const Estimators&) = delete;
  [[nodiscard]] cost::Estimator& of(const plan::PlanSpec& spec) { return all_[prices_.place_of(spec)]; }
  [[nodiscard]] const cost::Stack& stack(const plan::PlanSpec& spec) const { return prices_.of(spec).stack(); }
  [[nodiscard]] bool own() const { return prices_.stacks().named().own; }

 private:
  const cost::Prices prices_;
  std::vector<std::shared_ptr<cost::LayerStore>> stores_;
  std::vector<cost::Estimator> all_;
};

}  // namespace orrery::sim
