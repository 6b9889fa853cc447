#pragma once
/// How much memory a plan may be predicted to need so that it fits its device with the probability that a job requires.
#include <vector>

#include "clusters/cluster.h"
#include "cost/prices/stacks.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

class Room {
 public:
  /// Room on a device of `cluster`, of which a plan may fill `fraction`. `probability`: a plan must fit with at least
  /// this, given the spread of its stack's memory (Prices::intervals); 0: only its predicted memory must fit. CPU ranks
  /// have no spread: their memory is what the schedule says.
  Room(const clusters::Cluster& cluster, const models::Model& model, const Prices& prices, double fraction,
       double probability);

  /// Bytes that the plan may be predicted to need.
  [[nodiscard]] double of(const plan::PlanSpec& spec) const { return by_place_[prices_->place_of(spec)]; }
  /// Bytes that a plan may fill, without regard to uncertainty.
  [[nodiscard]] double capacity() const { return capacity_; }
  /// Whether some plan has less room than the capacity.
  [[nodiscard]] bool holds_back() const;

 private:
  const Prices* prices_;  ///< must outlive this
  double capacity_;
  std::vector<double> by_place_;  ///< in the order of prices.all()
};

}  // namespace orrery::cost
