#pragma once
/// Random regular clusters and groups of their devices, for properties that must hold on any.
#include <algorithm>
#include <vector>

#include "base/random.h"
#include "clusters/build.h"
#include "clusters/cluster.h"

namespace orrery::sim::testing {

/// Numbers in [0, bound), one after the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  int operator()(int bound) {
    return static_cast<int>(base::below(static_cast<std::uint64_t>(bound), seed_, 5, next_++));
  }
  double between(double low, double high) { return low + (high - low) * base::uniform(seed_, 6, next_++); }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + (*this)(static_cast<int>(values.size())));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

/// 1 to 6 nodes of 1 to 8 devices behind switches or fully meshed, with one NIC or several, on one leaf, on leaves with
/// oversubscribed uplinks, or on rails.
inline clusters::Cluster random_cluster(Draw& draw) {
  using base::BytesPerSecond;
  using base::Seconds;
  clusters::Cluster cluster;
  cluster.name = "random";
  cluster.devices.emplace_back();
  cluster.nodes = 1 + draw(6);
  const int devices = cluster.devices_per_node = draw.of({1, 2, 4, 8});
  clusters::Shape shape;
  clusters::NodeShape& node = shape.node;
  node.fabric = devices > 1 && draw(3) == 0 ? clusters::NodeFabric::mesh : clusters::NodeFabric::nvswitch;
  node.links = 1 + draw(12);
  node.link_bandwidth = BytesPerSecond{draw.between(10e9, 50e9)};
  node.latency = Seconds{draw.between(0.1e-6, 2e-6)};
  node.multicast = true;
  for (int a = 0; node.fabric == clusters::NodeFabric::mesh && a < devices; ++a) {
    for (int b = 0; b < a; ++b) node.edges.push_back({b, a, node.links});
  }
  node.pcie_switches = draw.of({1, std::max(1, devices / 2), devices});
  node.pcie_bandwidth = BytesPerSecond{draw.between(12e9, 60e9)};
  node.pcie_latency = node.latency * draw.between(0.6, 2);  // a device's own links are the nearer way
  node.socket_bandwidth = BytesPerSecond{draw.between(10e9, 60e9)};
  node.socket_latency = Seconds{0.1e-6};
  node.host_memory_bandwidth = BytesPerSecond{100e9};
  node.nics = draw.of({1, std::max(1, devices / 2), devices});
  node.nic_bandwidth = BytesPerSecond{draw.between(5e9, 50e9)};
  node.nic_latency = Seconds{draw.between(0.5e-6, 5e-6)};
  shape.network.rails = node.nics == devices && draw(2) == 0;
  shape.network.leaf_nodes = draw(4);
  shape.network.oversubscription = draw.of({1.0, 2.0, 3.5});
  shape.network.hop_latency = Seconds{draw.between(0.1e-6, 2e-6)};
  cluster.shape = shape;
  clusters::build(cluster);
  return cluster;
}

}  // namespace orrery::sim::testing
