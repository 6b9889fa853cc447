#pragma once
/// What the readers of dumps find, before anything is concluded from it: the parts of one node, the cables of a fabric.
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"

namespace orrery::clusters {

/// A PCIe switch or root port that others hang from.
struct FoundBridge {
  int parent = -1;       ///< bridge above; -1: the CPU
  int cpu = 0;           ///< index into FoundNode::cpus
  double bandwidth = 0;  ///< bytes/s upwards; 0: not said
};

struct FoundGpu {
  int number = 0;     ///< as CUDA or nvidia-smi counts
  std::string bus;    ///< "0000:07:00.0"; empty: not said
  std::string pci;    ///< "10de:20b0"; empty: not said
  std::string model;  ///< "NVIDIA A100-SXM4-40GB"; empty: not said
  int sm = 0;         ///< 0: not said
  int cpu = 0;
  int bridge = -1;       ///< -1: directly on the CPU
  double bandwidth = 0;  ///< PCIe, bytes/s; 0: not said
  int switch_links = 0;  ///< NVLinks into NVSwitches
  double cpu_links = 0;  ///< bytes/s of NVLink or C2C into the CPU
  base::Location where;
};

struct FoundNic {
  std::string name;
  int cpu = 0;
  int bridge = -1;
  double bandwidth = 0;  ///< PCIe, bytes/s; 0: not said
  double speed = 0;      ///< of the port, bytes/s; 0: not said
  bool infiniband = true;
  base::Location where;
};

struct FoundCpu {
  std::string numa;                  ///< as the dump names it
  std::string vendor, architecture;  ///< "GenuineIntel", "x86_64"; empty: not said
  int family = 0, model = 0;
};

struct FoundNode {
  std::string host;  ///< empty: not said
  std::vector<FoundCpu> cpus;
  std::vector<FoundBridge> bridges;
  std::vector<FoundGpu> gpus;  ///< by number, from 0 without a gap
  std::vector<FoundNic> nics;
  std::vector<MeshEdge> edges;  ///< NVLinks between GPUs
  bool knows_nvlink = true;     ///< the dump would name NVLinks if there were any
  bool far_switch = false;      ///< the NVSwitches are not on this node's buses: they may join several nodes
  base::Location where;
};

/// One side of a cable: index into FoundFabric::nodes, and its port.
struct FoundPort {
  int node = 0, port = 0;
  bool operator==(const FoundPort&) const = default;
  auto operator<=>(const FoundPort&) const = default;
};

struct FoundCable {
  FoundPort a, b;        ///< a < b
  double bandwidth = 0;  ///< bytes/s per direction
  base::Location where;
};

/// A switch, or one adapter of a host.
struct FabricNode {
  bool is_switch = false;
  std::string guid, name;     ///< "S-…", and its description
  std::string host, adapter;  ///< of an adapter: the first word of its description, and the rest
  base::Location where;
};

struct FoundFabric {
  std::vector<FabricNode> nodes;
  std::vector<FoundCable> cables;
  base::Location where;
};

}  // namespace orrery::clusters
