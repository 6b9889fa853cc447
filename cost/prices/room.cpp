// The room of a plan, by stack.
#include "cost/prices/room.h"

#include <algorithm>

#include "cost/parameters/intervals.h"

namespace orrery::cost {

Room::Room(const clusters::Cluster& cluster, const models::Model& model, const Prices& prices, double fraction,
           double probability)
    : prices_(&prices), capacity_(cluster.device().memory.value * fraction), by_place_(prices.all().size(), capacity_) {
  if (probability <= 0 || cluster.device().kind == clusters::DeviceKind::cpu) return;
  const bool several_nodes = cluster.size() > cluster.devices_per_node;
  for (std::size_t i = 0; i < by_place_.size(); ++i) {
    const auto spread =
        spread_of(prices.intervals(), prices.stacks().all()[i], several_nodes, setting_of(cluster, model));
    if (!spread) continue;
    by_place_[i] = std::min(capacity_, most_that_fits(cluster.device().memory.value, spread->memory, probability));
  }
}

bool Room::holds_back() const {
  return std::any_of(by_place_.begin(), by_place_.end(), [&](double room) { return room < capacity_; });
}

}  // namespace orrery::cost
