#pragma once
/// A cluster's graph as a replay of all ranks needs it: directions of links by number, and routes between devices that
/// are quick to ask for. Routes are found once per kind of node (equal nodes share them) and once per pair of switches
/// that NICs plug into, never for all pairs of devices.
///
/// A device sends to another node through the NICs nearest to it; devices that are equally near to several NICs share
/// them out in order, as NCCL does. Where a node has more NICs than devices, a device's traffic is spread over its own.
#include <cstdint>
#include <memory>
#include <vector>

#include "clusters/cluster.h"

namespace orrery::sim {

/// One direction of a link of the graph: 2 * edge + (0 from source to target, 1 back), edges in the graph's order.
struct Direction {
  clusters::LinkKind kind = clusters::LinkKind::nvlink;
  int tier = 0;          ///< network: 0 NIC to switch, 1 between a leaf and what is above, 2 above
  double bandwidth = 0;  ///< bytes/s, datasheet
};

class Fabric {
 public:
  explicit Fabric(const clusters::Cluster& cluster);
  ~Fabric();

  [[nodiscard]] int directions() const;
  [[nodiscard]] const Direction& direction(int number) const;
  /// Whether a direction between switches has as much bandwidth as all that leads to it from below (up the tree), or
  /// away from it (down): then it cannot be full unless those are, and what is fair does not depend on it.
  [[nodiscard]] bool implied(int number) const;

  /// NICs that a device's traffic to other nodes is spread over; 1 where it has none of its own.
  [[nodiscard]] int ways(int device) const;
  /// Appends the directions from device a to device b, of its way-th share when they stand in different nodes.
  void route(int a, int b, int way, std::vector<int>& out) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace orrery::sim
