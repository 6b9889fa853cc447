#pragma once
/// How a communication library wires a group of devices: the channels (rings, trees, NVLS heads) that it finds in a
/// node's graph, the bandwidth of one of them, and its path types. The search is NCCL's own (2.28.9,
/// src/graph/search.cc and paths.cc), run on this cluster's graph, so it holds for DGX-1V's cube mesh and its subsets,
/// for NVSwitch, for nodes with PCIe only and for custom machines. A search takes milliseconds: keep its result.
#include <string>
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters {

/// How two ends are connected, from best to worst, with NCCL's abbreviations.
enum class PathType {
  local,          ///< LOC: the same device
  nvlink,         ///< NVL: the devices' own links, direct or over switches
  relay,          ///< NVB: the devices' own links, through another device of the group
  pcie_switch,    ///< PIX: one PCIe switch
  pcie_switches,  ///< PXB: several PCIe switches
  nic_relay,      ///< PXN: to a NIC, through another device that is nearer to it
  host_bridge,    ///< PHB: a CPU socket
  sockets,        ///< SYS: between CPU sockets
  none
};

/// One channel within one node.
struct Channel {
  std::vector<int> order;  ///< global devices: a ring in its order, or a tree's chain from its head
  int nic_in = -1;         ///< between nodes: the node's NIC that feeds order.front()
  int nic_out = -1;        ///< and the NIC that order.back() (in a tree order.front()) sends on
  bool operator==(const Channel&) const = default;
};

/// Equal channels. NCCL launches twice as many rings and trees as it finds here, each with half the bandwidth; its
/// tuning model counts those found.
struct Channels {
  int count = 0;         ///< 0: none
  BytesPerSecond intra;  ///< of one channel, within a node; the library's figure, not the datasheet's
  BytesPerSecond inter;  ///< of one channel, between nodes; equals intra in one node
  PathType path_intra = PathType::none;
  PathType path_inter = PathType::none;  ///< from devices to NICs; `none` within one node
  bool cross_nic = false;                ///< a ring may leave a node through another NIC than the one it entered by
  std::vector<Channel> channels;         ///< in the group's first node
  [[nodiscard]] BytesPerSecond total() const { return inter * count; }
};

/// Everything that a tuning model needs to know about a group of devices.
struct Wiring {
  int ranks = 1, nodes = 1, per_node = 1;  ///< per_node: members in the node that has the most
  Channels ring, tree, nvls;               ///< nvls: heads; none without NVSwitches that multicast
  CpuVendor cpu = CpuVendor::other;
  bool direct = true;       ///< the devices' own links join the group's members within each node; else PCIe does
  bool switched = false;    ///< those links lead through switches, not directly between devices
  bool staged = false;      ///< messages between nodes pass through host memory
  Seconds message_latency;  ///< time that the network's software takes per message (TCP); 0 for RDMA
};

/// `members`: at least one device, each once, in any order. Over several nodes: the worst of each figure.
[[nodiscard]] Wiring wiring_of(const Cluster& cluster, const std::vector<int>& members);

/// The devices of channel `channel` in ring order over all nodes of the group, as a replay sends along it.
[[nodiscard]] std::vector<int> ring_over(const Cluster& cluster, const std::vector<int>& members, int channel);

/// A node of a tree over 0..count-1; -1: none.
struct TreeNode {
  int up = -1;
  int down[2] = {-1, -1};
  bool operator==(const TreeNode&) const = default;
};
/// NCCL's double binary tree over `count` nodes (src/graph/trees.cc; Sanders, Speck, Traeff 2009): all nodes but one
/// are a leaf in at least one tree, so that the two trees together use each node's links in both directions.
[[nodiscard]] std::vector<TreeNode> binary_tree(int count);
[[nodiscard]] std::vector<TreeNode> second_binary_tree(int count);

[[nodiscard]] const char* name_of(PathType type);  ///< "NVL", "NVB", "PIX" ...

}  // namespace orrery::clusters
