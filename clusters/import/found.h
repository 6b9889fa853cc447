#pragma once
/// What the readers of dumps find, before any conclusions: the parts of one node, the cables of a fabric.
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "clusters/cluster.h"

namespace orrery::clusters {

using BridgeId = base::Id<struct FoundBridgeTag>;  ///< FoundNode::bridges

/// A PCIe switch or root port with others below it.
struct FoundBridge {
  BridgeId parent = {};  ///< bridge above; none: the CPU
  int cpu = 0;           ///< index into FoundNode::cpus
  double bandwidth = 0;  ///< bytes/s upwards; 0: unknown
};

struct FoundGpu {
  int number = 0;     ///< as numbered by CUDA or nvidia-smi
  std::string bus;    ///< "0000:07:00.0"; empty: unknown
  std::string pci;    ///< "10de:20b0"; empty: unknown
  std::string model;  ///< "NVIDIA A100-SXM4-40GB"; empty: unknown
  int sm = 0;         ///< 0: unknown
  int cpu = 0;
  BridgeId bridge;       ///< none: directly on the CPU
  double bandwidth = 0;  ///< PCIe, bytes/s; 0: unknown
  int switch_links = 0;  ///< NVLinks into NVSwitches
  double cpu_links = 0;  ///< bytes/s of NVLink or C2C into the CPU
  base::Location where;
};

struct FoundNic {
  std::string name;
  int cpu = 0;
  BridgeId bridge;
  double bandwidth = 0;  ///< PCIe, bytes/s; 0: unknown
  double speed = 0;      ///< of the port, bytes/s; 0: unknown
  bool infiniband = true;
  base::Location where;
};

struct FoundCpu {
  std::string numa;                  ///< as named in the dump
  std::string vendor, architecture;  ///< "GenuineIntel", "x86_64"; empty: unknown
  int family = 0, model = 0;
};

struct FoundNode {
  std::string host;  ///< empty: unknown
  std::vector<FoundCpu> cpus;
  base::ById<BridgeId, FoundBridge> bridges;
  std::vector<FoundGpu> gpus;  ///< by number, from 0 without gaps
  std::vector<FoundNic> nics;
  std::vector<MeshEdge> edges;  ///< NVLinks between GPUs
  bool knows_nvlink = true;     ///< the dump's format would show NVLinks if there were any
  bool far_switch = false;      ///< the NVSwitches are not on this node's buses, so they may join several nodes
  base::Location where;
};

/// One end of a cable: index into FoundFabric::nodes, and its port.
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
