#pragma once
/// The connections of a communicator, laid on the fabric hop by hop and counted: rings and trees as NCCL wires them.
/// Private to sim/.
#include <map>
#include <optional>
#include <vector>

#include "clusters/host_paths.h"

#include "sim/traffic.h"

namespace orrery::sim {

class Connections {
 public:
  Connections(const Fabric& fabric, const clusters::Cluster& cluster, Traffic& traffic);

  /// Rings over the devices of a group; sets their connections and uses. Within a node of direct links between
  /// devices one connection for each channel that clusters/rings.h finds, else one from each device to the next. Over
  /// several nodes one for each NIC of the fullest node's members: connection k comes into a node at member k, passes
  /// all members and leaves at the one before k, on to the device in the same place of the next node; so each member
  /// sends to the network once. Where all nodes have direct links and the same members, channels again.
  void add_rings(const std::vector<int>& devices, Communicator& c);
  /// The double binary tree over nodes, of which every connection of the rings (so every NIC) has both trees, from the
  /// member that its ring enters at; the rest of a node hangs from that member as a chain. Sets the uses of trees, of
  /// connections that carry half of a ring's part of the message each way. Comes after add_rings().
  void add_trees(const std::vector<int>& devices, Communicator& c);
  /// Each member to each other, as an all-to-all. What goes to another node leaves by the sender's own NICs and comes
  /// in by those of the device in the same place there (NCCL's PXN). Comes after add_rings().
  void add_exchange(const std::vector<int>& devices, Communicator& c);
  /// Each member to the next, over all NICs of the two where they are on different nodes.
  void add_shift(const std::vector<int>& devices, Communicator& c);
  /// One message from the first to the second.
  void add_pair(int from, int to, Communicator& c);
  /// Between a device, its host's memory and the node's drives, as the stream leads.
  void add_copies(int device, plan::Stream stream, Communicator& c);

 private:
  using Nodes = std::vector<std::vector<int>>;
  void hop(int a, int b, int way, int connections);
  void end(Wired& wired);
  /// Orders of the ring channels within the node (the nodes) of a group; none where connections do not depend on them.
  [[nodiscard]] const std::vector<std::vector<int>>* channels(const Nodes& nodes);
  void ring_in_node(const std::vector<int>& devices, Wired& wired);
  void rings_over_nodes(const Nodes& nodes, Wired& wired);
  void rings_of_channels(const Nodes& nodes, const std::vector<std::vector<int>>& orders, Wired& wired);

  const Fabric& fabric_;
  const clusters::Cluster& cluster_;
  Traffic& traffic_;
  std::vector<int> number_, count_;  // by direction
  std::vector<int> touched_, route_;
  std::optional<clusters::HostPaths> hosts_;
  std::map<std::pair<bool, std::vector<int>>, std::vector<std::vector<int>>> channels_;  // by members' places
};

}  // namespace orrery::sim
