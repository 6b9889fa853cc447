#pragma once
/// Counts a communicator's connections hop by hop on the fabric's links: rings and trees as NCCL wires them. Private to
/// sim/.
#include <map>
#include <optional>
#include <vector>

#include "clusters/build.h"
#include "clusters/host_paths.h"

#include "sim/links/traffic.h"

namespace orrery::sim {

class Connections {
 public:
  Connections(const Fabric& fabric, const clusters::Cluster& cluster, Traffic& traffic);

  /// Rings over the devices of a group; sets their connections and uses. Within a node whose devices have direct links,
  /// one connection per channel that clusters/rings.h finds; in another node, one from each device to the next. Over
  /// several nodes, one per NIC of the members in the fullest node: connection k enters a node at member k, passes all
  /// members and leaves from the one before k to the device at the same position in the next node, so each member sends
  /// to the network once. If all nodes have direct links and the same members, one per channel again. On a torus, one
  /// for each link on which a member sends: along each dimension to the neighbours in the group.
  void add_rings(const std::vector<int>& devices, Communicator& c);
  /// NCCL's double binary tree over nodes: each connection of the rings (so each NIC) has both trees, starting at the
  /// member where its ring enters; the rest of a node hangs from that member as a chain. Sets the uses of trees, for
  /// connections that carry half of a ring's part of the message in each direction. Call after add_rings().
  void add_trees(const std::vector<int>& devices, Communicator& c);
  /// From each member to each other one, as in an all-to-all. Messages to another node leave through the sender's own
  /// NICs and enter through those of the device at the same position there (NCCL's PXN). Call after add_rings().
  void add_exchange(const std::vector<int>& devices, Communicator& c);
  /// From each member to the next, over all NICs of both if they are on different nodes.
  void add_shift(const std::vector<int>& devices, Communicator& c);
  /// One message from the first to the second.
  void add_pair(int from, int to, Communicator& c);
  /// Between a device, its host's memory and the node's drives, in the stream's direction.
  void add_copies(int device, plan::Stream stream, Communicator& c);

 private:
  using Nodes = std::vector<std::vector<int>>;
  void hop(int a, int b, int way, int connections);
  void end(Wired& wired);
  /// Orders of a group's ring channels within each of `nodes`; none if connections do not depend on them.
  [[nodiscard]] const std::vector<std::vector<int>>* channels(const Nodes& nodes);
  void ring_in_node(const std::vector<int>& devices, Wired& wired);
  void rings_over_nodes(const Nodes& nodes, Wired& wired);
  /// False if the group has no such form.
  bool along_torus(const std::vector<int>& devices, Wired& wired);
  void rings_of_channels(const Nodes& nodes, const std::vector<std::vector<int>>& orders, Wired& wired);

  const Fabric& fabric_;
  const clusters::Cluster& cluster_;
  Traffic& traffic_;
  std::vector<int> number_, count_;  // by direction
  std::vector<int> touched_, route_;
  std::optional<clusters::HostPaths> hosts_;
  std::optional<clusters::Torus> torus_;  ///< none: the cluster is no torus
  std::map<std::pair<bool, std::vector<int>>, std::vector<std::vector<int>>> channels_;  // by positions
};

}  // namespace orrery::sim
