#pragma once
/// How a communication library wires a group of devices: the channels (rings, trees, NVLS heads) that it finds in a
/// node's graph, what one of them carries, and what it runs over. The search is NCCL's own (2.28.9, src/graph/search.cc
/// and paths.cc), done on this cluster's graph, so that it holds for DGX-1V's cube mesh and its subsets, for NVSwitch,
/// for nodes with PCIe only and for machines of one's own. A search takes milliseconds: keep its result.
#include <string>
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters {

/// How two ends are connected, from best to worst; the words are NCCL's.
enum class PathType {
  local,          ///< LOC: the same device
  nvlink,         ///< NVL: the devices' own links, directly or over switches
  relay,          ///< NVB: the devices' own links, over another device of the group
  pcie_switch,    ///< PIX: one PCIe switch
  pcie_switches,  ///< PXB: several PCIe switches
  nic_relay,      ///< PXN: to a NIC, over another device that is nearer to it
  host_bridge,    ///< PHB: a CPU socket
  sockets,        ///< SYS: between CPU sockets
  none
};

/// One channel within one node.
struct Channel {
  std::vector<int> order;  ///< devices (global): of a ring in its order, of a tree the chain from its head
  int nic_in = -1;         ///< between nodes: the NIC (of the node) that feeds order.front()
  int nic_out = -1;        ///< and the one that order.back() sends on (of a tree: order.front())
  bool operator==(const Channel&) const = default;
};

/// Equal channels. NCCL launches twice as many rings and trees as it finds here, each with half of the bandwidth; its
/// tuning model counts these.
struct Channels {
  int count = 0;         ///< 0: there are none
  BytesPerSecond intra;  ///< of one channel, within a node; what the library counts on, not the datasheet's
  BytesPerSecond inter;  ///< of one channel, between nodes; equals intra in one node
  PathType path_intra = PathType::none;
  PathType path_inter = PathType::none;  ///< from devices to NICs; none in one node
  bool cross_nic = false;                ///< a ring may leave a node through another NIC than it came by
  std::vector<Channel> channels;         ///< in the group's first node
  [[nodiscard]] BytesPerSecond total() const { return inter * count; }
};

/// Everything that a tuning model asks of a group of devices.
struct Wiring {
  int ranks = 1, nodes = 1, per_node = 1;  ///< per_node: of the node with the most members
  Channels ring, tree, nvls;               ///< nvls: heads; none without NVSwitches that multicast
  CpuVendor cpu = CpuVendor::other;
  bool direct = true;       ///< the devices' own links join all of the group within its nodes; else PCIe does
  bool switched = false;    ///< over switches, not over links between devices
  bool staged = false;      ///< messages between nodes pass through host memory
  Seconds message_latency;  ///< what the network's software takes per message (TCP); 0 for RDMA
};

/// `members`: at least one device, each once, in any order. What holds for several nodes is what holds for the worst.
[[nodiscard]] Wiring wiring_of(const Cluster& cluster, const std::vector<int>& members);

/// The devices of channel `channel` in ring order over all nodes of the group: what a replay sends along.
[[nodiscard]] std::vector<int> ring_over(const Cluster& cluster, const std::vector<int>& members, int channel);

/// A node of a tree over 0..count-1; -1: none.
struct TreeNode {
  int up = -1;
  int down[2] = {-1, -1};
  bool operator==(const TreeNode&) const = default;
};
/// Both of NCCL's double binary trees over `count` nodes (src/graph/trees.cc; Sanders, Speck, Traeff 2009): every node
/// but one is a leaf of one tree at least, so that both together use each node's links in both directions.
[[nodiscard]] std::vector<TreeNode> binary_tree(int count);
[[nodiscard]] std::vector<TreeNode> second_binary_tree(int count);

[[nodiscard]] const char* name_of(PathType type);  ///< "NVL", "NVB", "PIX" ...

}  // namespace orrery::clusters
