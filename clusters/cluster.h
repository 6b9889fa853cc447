#pragma once
/// Cluster: what a job runs on, as a graph of devices, switches, NICs and the links between them, plus what a device
/// can do. Datasheet numbers only; fitted numbers live in calibration files (cost/calibration.h). It knows no layer.
#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace orrery::clusters {

using base::Bytes;
using base::BytesPerSecond;
using base::FlopsPerSecond;
using base::Seconds;

enum class DeviceKind { gpu, cpu };

/// One kind of accelerator (or, on a localhost cluster, one CPU rank).
struct Device {
  std::string name;  ///< "A100-SXM4-80GB"
  DeviceKind kind = DeviceKind::gpu;
  std::map<std::string, FlopsPerSecond> peak;  ///< dense matrix peak by dtype: "fp32", "tf32", "bf16", "fp16", "fp8"
  FlopsPerSecond vector_peak;                  ///< fp32 outside the matrix units
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  Bytes cache;              ///< last-level cache
  int multiprocessors = 1;  ///< SMs, or cores of a CPU rank
  base::Watts power;
  base::DollarsPerHour price;
  std::vector<std::string> sources;
  bool operator==(const Device&) const = default;
};

enum class VertexKind { device, nvswitch, pcie_switch, cpu, nic, leaf, spine, core, host_memory };
enum class LinkKind { nvlink, pcie, inter_socket, network, memory };

struct Vertex {
  VertexKind kind = VertexKind::device;
  std::string name;  ///< "node3/gpu5"
  int node = -1;     ///< index of the node it stands in; -1 for the fabric
  int device = -1;   ///< global device index (= rank when ranks are placed in order); -1 when it is none
};

/// A cable, full duplex: each direction has `bandwidth`.
struct Link {
  LinkKind kind = LinkKind::nvlink;
  BytesPerSecond bandwidth;
  Seconds latency;
};

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, Vertex, Link>;

/// A named class of links with its datasheet values, for people, for calibration and for closed forms.
struct LinkClass {
  std::string name;          ///< "nvlink", "infiniband", "roce", "shared-memory"
  BytesPerSecond bandwidth;  ///< per direction and device
  Seconds latency;
};

struct Cluster {
  std::string name;
  std::vector<Device> devices;  ///< kinds; today every node of a cluster is of one kind: devices[0]
  int nodes = 1;
  int devices_per_node = 1;
  LinkClass intra;  ///< between devices of a node, per device and direction
  LinkClass inter;  ///< between nodes, per device and direction (NICs of a node / devices of a node)
  int nics_per_node = 0;
  double oversubscription = 1;  ///< of the fabric above the leaves
  Graph graph;
  std::string stack;  ///< default software stack, by name (cost/stacks/); empty = chosen by the job
  std::vector<std::string> sources;
  std::string text;  ///< the YAML it was read from, as carried in plan files

  [[nodiscard]] int size() const { return nodes * devices_per_node; }
  [[nodiscard]] const Device& device() const { return devices.front(); }
  /// Dense matrix peak for a dtype name; falls back bf16 <-> fp16, fp8 -> bf16, tf32 -> fp32.
  [[nodiscard]] FlopsPerSecond peak(const std::string& dtype) const;
};

}  // namespace orrery::clusters
