#pragma once
/// Cluster: what a job runs on, as a graph of devices, switches, NICs and the links between them, plus what a device
/// can do. Datasheet numbers only; fitted numbers live in calibration files (cost/parameters/calibration.h). Knows
/// nothing of layers.
#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/copy_on_write.h"
#include "base/units.h"

namespace orrery::clusters {

using base::Bytes;
using base::BytesPerSecond;
using base::FlopsPerSecond;
using base::Seconds;

enum class DeviceKind { gpu, accelerator, cpu };  ///< accelerator: a TPU and the like, which does as GPUs do
/// The architectures that a communication library has tables for. `generic`: it has none, so the file's numbers apply.
enum class Architecture { cpu, volta, ampere, hopper, blackwell, generic };

/// One kind of accelerator (or, on a localhost cluster, one CPU rank).
struct Device {
  std::string name;  ///< "A100-SXM4-80GB"
  DeviceKind kind = DeviceKind::gpu;
  Architecture architecture = Architecture::ampere;  ///< selects a communication library's tuning
  /// Dense matrix peak by dtype: "fp32", "tf32", "bf16", "fp16", "fp8", "fp4".
  std::map<std::string, FlopsPerSecond> peak;
  FlopsPerSecond vector_peak;  ///< fp32 outside the matrix units
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  Bytes cache;              ///< last-level cache
  int multiprocessors = 1;  ///< SMs, or cores of a CPU rank
  base::Watts power;        ///< rated (thermal design power); 0: not given
  base::Watts idle_power;   ///< without work, as its driver reads it; 0: not given
  base::DollarsPerHour price;
  std::vector<std::string> sources;
  bool operator==(const Device&) const = default;
};

enum class VertexKind { device, nvswitch, pcie_switch, cpu, nic, leaf, spine, core, host_memory, nvme };
/// nvlink: the devices' own links, of any vendor (NVLink, xGMI, ICI). frontend: the network of the CPUs' own NICs,
/// which feeds in data; messages between devices never take it.
enum class LinkKind { nvlink, pcie, inter_socket, network, memory, frontend };

struct Vertex {
  VertexKind kind = VertexKind::device;
  std::string name;  ///< "node3/gpu5"
  int node = -1;     ///< index of its node; -1 in the fabric
  int device = -1;   ///< global device index (= rank when ranks are placed in order); -1 for other vertices
  Bytes capacity{};  ///< of host memory and NVMe, where known
  bool operator==(const Vertex&) const = default;
};

/// A cable, full duplex: each direction has `bandwidth`. Equal parallel cables whose traffic is striped (the links of
/// a GPU to all NVSwitch planes, a leaf's uplinks to all spines) are one Link with their bandwidths added.
struct Link {
  LinkKind kind = LinkKind::nvlink;
  BytesPerSecond bandwidth;
  Seconds latency;
  bool operator==(const Link&) const = default;
};

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, Vertex, Link>;

/// A named class of links with its datasheet values, for people, for calibration and for closed forms.
struct LinkClass {
  std::string name;          ///< "nvlink", "xgmi", "pcie", "infiniband", "roce", "tcp", "shared-memory"
  BytesPerSecond bandwidth;  ///< per direction and device
  Seconds latency;           ///< from device to device
  bool operator==(const LinkClass&) const = default;
};

/// none: devices reach each other over PCIe only. torus: every device has links to its neighbours in all directions,
/// across node boundaries too.
enum class NodeFabric { nvswitch, mesh, shared_memory, none, torus };
enum class CpuVendor { intel, amd, other };

/// `links` NVLinks between devices a and b of a node.
struct MeshEdge {
  int a = 0, b = 0, links = 1;
  bool operator==(const MeshEdge&) const = default;
};

/// How each node of a regular cluster is wired. A latency is that of one link, except `latency`, from device to device.
struct NodeShape {
  NodeFabric fabric = NodeFabric::nvswitch;
  int links = 1;                  ///< from one device into the fabric
  BytesPerSecond link_bandwidth;  ///< of one link, per direction
  Seconds latency;                ///< between two devices over the fabric (mesh: over one edge)
  int boards = 1;                 ///< NVSwitch boards; devices are spread evenly over them
  BytesPerSecond trunk;           ///< between two boards; 0 with one board
  bool multicast = false;         ///< the switches reduce and multicast (NVLink SHARP)
  std::vector<MeshEdge> edges;    ///< mesh
  std::vector<int> block;         ///< torus: the node's devices as a box, innermost dimension first
  std::string link_name;          ///< name of intra; empty: by kind of fabric
  double link_efficiency = 0;     ///< share of link_bandwidth that libraries achieve; 0: NCCL's, by architecture
  int pcie_switches = 0;          ///< devices and NICs are spread evenly over them; 0: they sit on the sockets
  BytesPerSecond pcie_bandwidth;
  Seconds pcie_latency;
  CpuVendor cpu = CpuVendor::other;
  int sockets = 1;
  BytesPerSecond socket_bandwidth;  ///< between two sockets
  Seconds socket_latency;
  BytesPerSecond host_memory_bandwidth;  ///< of one socket
  Bytes host_memory;                     ///< of the node; 0: not given
  Seconds host_memory_latency;
  int nvme = 0;  ///< drives, spread evenly over the sockets; the figures below are per drive
  Bytes nvme_capacity;
  BytesPerSecond nvme_read, nvme_write;
  Seconds nvme_latency;
  int nics = 0;
  BytesPerSecond nic_bandwidth;
  /// Of a port that exchanges with many hosts at once (all-to-all), where host cores run the protocol; 0: as one flow.
  BytesPerSecond nic_exchange_bandwidth;
  Seconds nic_latency;       ///< of one port: NIC to leaf switch
  bool nics_at_cpu = false;  ///< NICs sit on the sockets although there are PCIe switches
  int frontend_nics = 0;     ///< on the sockets; for data and storage, not for messages between devices
  BytesPerSecond frontend_bandwidth;
  Seconds frontend_latency;
  bool operator==(const NodeShape&) const = default;
};

/// The network above the NICs of a regular cluster: leaves, spines and, with pods, a core. Switches of one tier that
/// carry the same traffic are one vertex per leaf, pod and cluster.
struct NetworkShape {
  std::string kind = "infiniband";   ///< one of network_kinds() (clusters/read.h)
  bool rails = false;                ///< NIC i of each node in a group connects to leaf i of its group; else one leaf
  int leaf_nodes = 0;                ///< nodes under one leaf (or one set of rails); 0: all
  int pod_nodes = 0;                 ///< nodes under one spine tier; 0: all, without a core
  double oversubscription = 1;       ///< downlinks / uplinks of a leaf
  double core_oversubscription = 1;  ///< downlinks / uplinks of a pod's spines
  Seconds hop_latency;               ///< of each further switch
  bool staged = false;      ///< messages pass through host memory: NICs cannot, or may not, reach device memory (TCP)
  Seconds message_latency;  ///< software time per message, both ends together; 0 for RDMA
  std::vector<int> torus;   ///< devices in each dimension of a torus, which has no switches; empty: no torus
  bool operator==(const NetworkShape&) const = default;
};

/// What a regular cluster is built from.
struct Shape {
  NodeShape node;
  NetworkShape network;
  bool operator==(const Shape&) const = default;
};

/// A place besides device memory that can hold data; figures are for all such places of a node together.
struct Storage {
  Bytes capacity;  ///< 0: not given
  BytesPerSecond read, write;
  Seconds latency;
  bool operator==(const Storage&) const = default;
};

/// Parts that draw power besides the devices.
struct NodePower {
  base::Watts host;     ///< a node without its devices: processors, memory, switches within, NICs, fans, supplies
  base::Watts network;  ///< a node's share of the switches and optics between nodes
  double pue = 1;       ///< power usage effectiveness of the site: all power / that of the computers
  bool operator==(const NodePower&) const = default;
};

struct Cluster {
  std::string name;
  std::vector<Device> devices;  ///< the kinds; today all nodes use the same one: devices[0]
  int nodes = 1;
  int devices_per_node = 1;
  LinkClass intra;  ///< between devices of a node, per device and direction
  LinkClass inter;  ///< between nodes, per device and direction (NICs of a node / devices of a node)
  int nics_per_node = 0;
  double oversubscription = 1;  ///< of the fabric above the leaves
  Storage host_memory, nvme;    ///< of one node
  NodePower power;
  std::optional<Shape> shape;                ///< none: the cluster is given link by link
  base::CopyOnWrite<Graph> graph;            ///< copies of a cluster share it: 24,576 GPUs have 97,000 vertices
  std::vector<std::size_t> device_vertices;  ///< vertex of each device, by global device index
  std::string stack;  ///< default software stack, by name (cost/stacks/); empty = chosen by the job
  std::vector<std::string> sources;
  std::string text;  ///< self-contained YAML, as stored in plan files

  [[nodiscard]] int size() const { return nodes * devices_per_node; }
  [[nodiscard]] int node_of(int device) const { return device / devices_per_node; }
  [[nodiscard]] const Device& device() const { return devices.front(); }
  /// Dense matrix peak for a dtype name. A missing dtype falls back: bf16 <-> fp16, fp8 -> bf16, tf32 -> fp32.
  [[nodiscard]] FlopsPerSecond peak(const std::string& dtype) const;
};

[[nodiscard]] const char* name_of(DeviceKind kind);  ///< as files say it: "gpu"
/// What one of these devices is called where a rate is of each: "GPU", "chip", of a CPU's cores "rank".
[[nodiscard]] const char* word_for(DeviceKind kind);
[[nodiscard]] const char* name_of(Architecture architecture);  ///< "ampere"
/// Names of all architectures, in the order of the enumeration.
[[nodiscard]] const std::vector<std::string>& architecture_words();
[[nodiscard]] const char* name_of(VertexKind kind);  ///< "pcie-switch"
[[nodiscard]] const char* name_of(LinkKind kind);    ///< "inter-socket"

}  // namespace orrery::clusters
