#pragma once
/// One node as NCCL sees it: the group's GPUs, the switches, sockets and NICs, the bandwidth of their links in NCCL's
/// own figures (src/graph/topo.h), and the paths between them (paths.cc). For the search.
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters::nccl {

/// Link and path kinds share NCCL's numbers (topo.h: LINK_*, PATH_*); 3 and 6 are chip-to-chip links.
inline constexpr int kLocal = 0, kNvlink = 1, kRelay = 2, kPix = 4, kPxb = 5, kPxn = 7, kPhb = 8, kSys = 9, kNet = 10,
                     kNone = 11;

enum class NodeKind { gpu, nvswitch, pci, cpu, nic, net };

struct Link {
  int from = 0, to = 0;
  int type = kLocal;
  float bandwidth = 0;  ///< GB/s in this direction; during the search, what is still free
  int reverse = 0;      ///< the link of the other direction
};

struct Node {
  NodeKind kind = NodeKind::gpu;
  int number = 0;          ///< GPU: local device; NIC and net: index of the NIC in the node
  std::vector<int> links;  ///< outgoing
};

struct Path {
  std::vector<int> links;
  float bandwidth = 0;
  int type = kNone;
};

struct System {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<int> gpus, nets, switches, cpus;  ///< indices of the nodes of each kind
  std::vector<float> net_bandwidth;             ///< by net: GB/s that are still free
  std::vector<int> local_gpu;                   ///< by net: index in gpus of the GPU that the net belongs to; -1: none
  std::vector<std::vector<Path>> paths;         ///< between nodes; filled for paths to GPUs, nets, switches and CPUs
  bool inter = false;
  int capability = 80;  ///< CUDA compute capability x 10; devices not by NVIDIA count as 80
  CpuVendor vendor = CpuVendor::other;
  float most = 0;   ///< bandwidth of any GPU's best path
  float total = 0;  ///< sum over the links of the GPU with the most

  [[nodiscard]] const Path& path(int from, int to) const {
    return paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
};

/// `members`: global devices of one node. `inter`: the group has members in other nodes too.
[[nodiscard]] System system_of(const Cluster& cluster, const std::vector<int>& members, bool inter);

/// The share of the datasheet bandwidth that a library expects from the devices' own links.
[[nodiscard]] double link_efficiency(const Cluster& cluster);

/// The nets that a GPU prefers for channels 0, 1, ... until they repeat (ncclTopoGetLocalNet); indices of system.nets.
[[nodiscard]] std::vector<int> local_nets(const System& system, int gpu);

}  // namespace orrery::clusters::nccl
