#pragma once
/// One node as NCCL sees it: its GPUs that are in the group, switches, sockets and NICs, the bandwidth of their links
/// in the library's own figures (src/graph/topo.h), and the paths between them (paths.cc). For the search.
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters::nccl {

/// Kinds of links and of paths share their numbers (topo.h: LINK_*, PATH_*); 3 and 6 are chip-to-chip links.
inline constexpr int kLocal = 0, kNvlink = 1, kRelay = 2, kPix = 4, kPxb = 5, kPxn = 7, kPhb = 8, kSys = 9, kNet = 10,
                     kNone = 11;

enum class NodeKind { gpu, nvswitch, pci, cpu, nic, net };

struct Link {
  int from = 0, to = 0;
  int type = kLocal;
  float bandwidth = 0;  ///< GB/s, of this direction; what the search has left of it
  int reverse = 0;      ///< the other direction's link
};

struct Node {
  NodeKind kind = NodeKind::gpu;
  int number = 0;          ///< GPU: local device; NIC and net: which of the node's NICs
  std::vector<int> links;  ///< that leave
};

struct Path {
  std::vector<int> links;
  float bandwidth = 0;
  int type = kNone;
};

struct System {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<int> gpus, nets, switches, cpus;  ///< nodes of these kinds
  std::vector<float> net_bandwidth;             ///< left of each net
  std::vector<int> local_gpu;                   ///< of each net: which of gpus is its own; -1
  std::vector<std::vector<Path>> paths;         ///< from node to node; filled to GPUs, nets, switches and CPUs
  bool inter = false;
  int capability = 80;  ///< CUDA compute capability x 10; devices that are not NVIDIA's count as 80
  CpuVendor vendor = CpuVendor::other;
  float most = 0;   ///< bandwidth of the best path of one GPU
  float total = 0;  ///< of all links of the best GPU

  [[nodiscard]] const Path& path(int from, int to) const {
    return paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
};

/// `members`: global devices of one node. `inter`: the group has members in other nodes too.
[[nodiscard]] System system_of(const Cluster& cluster, const std::vector<int>& members, bool inter);

/// What a library counts on of the datasheet's bandwidth of the devices' own links.
[[nodiscard]] double link_efficiency(const Cluster& cluster);

/// Nets that a GPU prefers, for channel 0, 1, ... until they repeat (ncclTopoGetLocalNet); indices of system.nets.
[[nodiscard]] std::vector<int> local_nets(const System& system, int gpu);

}  // namespace orrery::clusters::nccl
