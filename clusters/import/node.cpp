/// Draws conclusions from a node's parts.
#include "clusters/import/node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/units.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

constexpr int kMulticastSm = 90;  // NVLink SHARP: NVSwitch 3, with Hopper
constexpr int kManyLinks = 8;     // between two GPUs: more than any direct wiring has
constexpr int kUsualSockets = 2;  // more NUMA nodes than this are parts of sockets (AMD's NPS)

tl::unexpected<base::Diagnostics> refuse(const char* code, const base::Location& where, std::string message,
                                         std::string help) {
  return base::fail({base::Diagnostic{base::Severity::error, code, where, std::move(message), std::move(help), {}}});
}

/// Compute capability of an architecture's data-centre GPUs.
int sm_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::volta: return 70;
    case Architecture::ampere: return 80;
    case Architecture::hopper: return 90;
    case Architecture::blackwell: return 100;
    case Architecture::cpu:
    case Architecture::generic: break;
  }
  return 0;
}

std::string candidates(const Known& known, int sm) {
  std::vector<std::string> names;
  for (const KnownGpu& gpu : known.gpus)
    if (gpu.sm == sm) names.push_back(gpu.device);
  return names.empty() ? "" : fmt::format(": {}", fmt::join(names, ", "));
}

/// The outermost PCIe bridge above `bridge`, if any.
BridgeId top_bridge(const FoundNode& node, BridgeId bridge) {
  while (bridge.exists() && node.bridges[bridge].parent.exists()) bridge = node.bridges[bridge].parent;
  return bridge;
}

bool close(double a, double b) {
  constexpr double kClose = 1e-3;  // relative: dumps round their figures
  return std::abs(a - b) <= kClose * std::max(a, b);
}

}  // namespace

double rounded(double value) {
  if (!(value > 0)) return value;
  constexpr int kDigits = 4;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - (kDigits - 1));
  return std::round(value / unit) * unit;
}

base::Result<std::string> identify(const FoundNode& node, const Known& known) {
  std::string device;
  for (const FoundGpu& gpu : node.gpus) {
    const KnownGpu* found = gpu.pci.empty() ? nullptr : gpu_of_pci(known, gpu.pci);
    if (found == nullptr && !gpu.model.empty()) found = gpu_called(known, gpu.model);
    if (found == nullptr) {
      std::string what = "the dump does not say what kind of GPU this is";
      if (!gpu.pci.empty())
        what = fmt::format("PCI device {} is not in the table of known GPUs", base::quoted(gpu.pci));
      if (!gpu.model.empty()) what = fmt::format("{} is not in the table of known GPUs", base::quoted(gpu.model));
      return refuse("E0309", gpu.where, what,
                    "name it with --device, as in clusters/catalog/devices" + candidates(known, gpu.sm));
    }
    if (gpu.sm != 0 && gpu.sm != found->sm)
      return refuse("E0306", gpu.where,
                    fmt::format("PCI device {} has compute capability {}, not {}", gpu.pci, found->sm, gpu.sm),
                    "the dump was edited, or the table is wrong: name the GPU with --device");
    if (!device.empty() && device != found->device)
      return refuse("E0309", gpu.where,
                    fmt::format("GPU {} is a {}, but earlier ones are {}", gpu.number, found->device, device),
                    "a cluster has one kind of GPU");
    device = found->device;
  }
  return device;
}

std::vector<std::string> drop_far_nics(FoundNode& node) {
  std::set<BridgeId> near;
  for (const FoundGpu& gpu : node.gpus)
    if (gpu.bridge) near.insert(top_bridge(node, gpu.bridge));
  const auto is_near = [&](const FoundNic& nic) {
    return nic.bridge.exists() && near.count(top_bridge(node, nic.bridge)) != 0;
  };
  std::vector<std::string> dropped;
  if (std::none_of(node.nics.begin(), node.nics.end(), is_near)) return dropped;
  std::vector<FoundNic> kept;
  for (FoundNic& nic : node.nics) {
    if (is_near(nic))
      kept.push_back(std::move(nic));
    else
      dropped.push_back(nic.name);
  }
  node.nics = std::move(kept);
  return dropped;
}

base::Result<NodeFigures> figures_of(const FoundNode& node, const Device& device, const std::string& device_name,
                                     const Known& known, Assumptions& assumptions) {
  NodeFigures figures;
  const int sm = sm_of(device.architecture);
  const bool linked = !node.edges.empty() || std::any_of(node.gpus.begin(), node.gpus.end(),
                                                         [](const FoundGpu& g) { return g.switch_links > 0; });
  for (const KnownGpu& gpu : known.gpus)
    if (gpu.device == device_name) figures.gpu_links = gpu.nvlinks;
  if (!node.knows_nvlink && figures.gpu_links > 0 && node.gpus.size() > 1)
    return refuse("E0311", node.where,
                  fmt::format("the dump does not say how the NVLinks of {} are connected", device_name),
                  "add the output of `nvidia-smi topo -m` or NCCL's topology of the same machine");
  const BySm* nvlink = of_sm(known.nvlinks, sm);
  if (linked && nvlink == nullptr)
    return refuse("E0311", node.where, fmt::format("the bandwidth of an NVLink of {} is not known", device.name),
                  "write the cluster by hand: clusters/import/known.yaml has GPUs with compute capability 7.0 and up");
  if (linked) figures.nvlink = nvlink->bandwidth.value;
  figures.multicast = sm >= kMulticastSm;
  const bool silent =
      std::any_of(node.gpus.begin(), node.gpus.end(), [](const FoundGpu& g) { return g.bandwidth == 0; });
  if (const BySm* pcie = of_sm(known.pcie, sm); pcie != nullptr) {
    figures.pcie = pcie->bandwidth.value;
  } else if (silent) {
    return refuse("E0311", node.where, fmt::format("the PCIe bandwidth of {} is not known", device.name),
                  "add NCCL's topology or hwloc's XML of the same machine");
  }
  if (silent) assumptions.push_back("assumed: PCIe bandwidth from the GPU's datasheet; the dump does not give it");

  const FoundCpu& cpu = node.cpus.front();
  if (cpu.vendor == "GenuineIntel") figures.vendor = CpuVendor::intel;
  if (cpu.vendor == "AuthenticAMD") figures.vendor = CpuVendor::amd;
  if (const KnownCpu* found = cpu_of(known, cpu.vendor, cpu.family, cpu.model); found != nullptr) {
    figures.socket = found->socket.value;
    figures.memory = found->memory.value;
    assumptions.push_back(
        "host: inter-socket bandwidth of NCCL's topo.h and memory bandwidth of the CPU's datasheet, by its family and "
        "model");
  } else {
    figures.socket = known.unknown_socket.value;
    figures.memory = known.unknown_memory.value;
    assumptions.push_back(
        "assumed: inter-socket and host memory bandwidth of the slowest known CPU; the dump does not name a known one");
  }
  int parts = 1;  // NUMA nodes per socket
  for (const FoundCpu& one : node.cpus) {
    constexpr int kMostNuma = 64;
    int numa = 0;
    for (const char c : one.numa) numa = c >= '0' && c <= '9' && numa < kMostNuma ? numa * 10 + (c - '0') : kMostNuma;
    if (numa < kMostNuma) parts = std::max(parts, (numa + kUsualSockets) / kUsualSockets);
  }
  if (parts > 1 && node.cpus.size() > kUsualSockets) {
    figures.memory = rounded(figures.memory / parts);
    assumptions.push_back(fmt::format("assumed: two sockets of {} NUMA nodes each", parts));
  }
  return figures;
}

void find_switches(FoundNode& node, const NodeFigures& figures) {
  const std::size_t n = node.gpus.size();
  if (node.edges.size() != n * (n - 1) / 2 || node.edges.empty()) return;
  const int links = node.edges.front().links;
  for (const MeshEdge& edge : node.edges)
    if (edge.links != links) return;
  const int direct = links * static_cast<int>(n - 1);
  const bool switched = figures.gpu_links > 0 ? direct > figures.gpu_links : n > 2 && links >= kManyLinks;
  if (!switched) return;
  node.edges.clear();
  for (FoundGpu& gpu : node.gpus) gpu.switch_links = links;
}

namespace {

struct Slots {
  std::vector<BridgeId> bridges;  ///< outermost bridges with GPUs, in the order of their first GPU
};

/// True when n things are spread evenly and in order over `parts`: thing i is in part i * parts / n.
bool in_order(const std::vector<int>& values, std::size_t parts) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<int>(i * parts / values.size())) return false;
  return true;
}

template <class Value>
int index_of(const std::vector<Value>& all, Value value) {
  const auto found = std::find(all.begin(), all.end(), value);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

bool add_fabric(const FoundNode& node, const NodeFigures& figures, const Known& known, NodeShape& shape,
                std::string& why) {
  const auto differs = [&](auto member) {
    return std::any_of(node.gpus.begin(), node.gpus.end(),
                       [&](const FoundGpu& g) { return g.*member != node.gpus.front().*member; });
  };
  if (differs(&FoundGpu::switch_links)) return why = "GPUs differ in their links to NVSwitches", false;
  if (std::any_of(node.gpus.begin(), node.gpus.end(), [](const FoundGpu& g) { return g.cpu_links > 0; }))
    return why = "GPUs have NVLinks to CPUs", false;
  const int switched = node.gpus.front().switch_links;
  if (switched > 0 && !node.edges.empty()) return why = "GPUs have links to each other and to NVSwitches", false;
  shape.link_bandwidth = BytesPerSecond{figures.nvlink};
  shape.latency = known.nvlink_latency;
  if (switched > 0) {
    shape.fabric = NodeFabric::nvswitch;
    shape.links = switched;
    shape.multicast = figures.multicast;
    return true;
  }
  std::set<int> linked;
  for (const MeshEdge& edge : node.edges) linked.insert({edge.a, edge.b});
  if (linked.empty()) {
    shape.fabric = NodeFabric::none;
    shape.link_bandwidth = {};
    shape.latency = {};
    return true;
  }
  if (linked.size() != node.gpus.size()) return why = "some GPUs have no NVLinks", false;
  shape.fabric = NodeFabric::mesh;
  shape.edges = node.edges;
  return true;
}

/// Sockets in the order of their first GPU.
std::vector<int> sockets_of(const FoundNode& node) {
  std::vector<int> sockets;
  for (const FoundGpu& gpu : node.gpus)
    if (index_of(sockets, gpu.cpu) < 0) sockets.push_back(gpu.cpu);
  return sockets;
}

/// Places GPUs on PCIe switches and sockets; in a node without switches, on its sockets.
bool add_gpus(const FoundNode& node, const Slots& slots, const std::vector<int>& sockets, NodeShape& shape,
              std::string& why) {
  std::vector<int> slot_of_gpu, socket_of_slot, socket_of_gpu;
  for (const FoundGpu& gpu : node.gpus) {
    slot_of_gpu.push_back(index_of(slots.bridges, top_bridge(node, gpu.bridge)));
    socket_of_gpu.push_back(index_of(sockets, gpu.cpu));
  }
  for (const BridgeId bridge : slots.bridges) socket_of_slot.push_back(index_of(sockets, node.bridges[bridge].cpu));
  const bool on_switches = !slots.bridges.empty();
  if (on_switches && !in_order(slot_of_gpu, slots.bridges.size()))
    return why = "GPUs are not spread evenly over PCIe switches", false;
  if (on_switches && !in_order(socket_of_slot, sockets.size()))
    return why = "PCIe switches are not spread evenly over sockets", false;
  if (!on_switches && !in_order(socket_of_gpu, sockets.size()))
    return why = "GPUs are not spread evenly over sockets", false;
  shape.pcie_switches = static_cast<int>(slots.bridges.size());
  shape.sockets = static_cast<int>(sockets.size());
  return true;
}

/// Places NICs on the GPUs' switches, or all of them on the sockets, and sorts them accordingly.
bool add_nics(FoundNode& node, const Slots& slots, const std::vector<int>& sockets, NodeShape& shape,
              std::string& why) {
  const auto slot = [&](const FoundNic& nic) { return index_of(slots.bridges, top_bridge(node, nic.bridge)); };
  const bool on_switches =
      std::any_of(node.nics.begin(), node.nics.end(), [&](const FoundNic& nic) { return slot(nic) >= 0; });
  const auto place = [&](const FoundNic& nic) { return on_switches ? slot(nic) : index_of(sockets, nic.cpu); };
  std::stable_sort(node.nics.begin(), node.nics.end(),
                   [&](const FoundNic& a, const FoundNic& b) { return place(a) < place(b); });
  std::vector<int> places;
  for (const FoundNic& nic : node.nics) places.push_back(place(nic));
  if (!in_order(places, on_switches ? slots.bridges.size() : sockets.size()))
    return why = on_switches ? "NICs are not spread evenly over the GPUs' PCIe switches"
                             : "NICs are not spread evenly over the GPUs' sockets",
           false;
  shape.nics_at_cpu = !on_switches && !node.nics.empty() && !slots.bridges.empty();
  for (const FoundNic& nic : node.nics) {
    if (nic.bandwidth > 0 && nic.bandwidth < nic.speed)
      return why = fmt::format("the PCIe link of {} is slower than its port", nic.name), false;
    if (nic.speed != node.nics.front().speed) return why = "NICs differ in speed", false;
  }
  return true;
}

bool add_slots(FoundNode& node, const NodeFigures& figures, NodeShape& shape, std::string& why) {
  Slots slots;
  const auto direct = std::count_if(node.gpus.begin(), node.gpus.end(), [](const FoundGpu& g) { return !g.bridge; });
  if (direct != 0 && direct != static_cast<std::ptrdiff_t>(node.gpus.size()))
    return why = "some GPUs sit on PCIe switches and others on CPUs", false;
  for (const FoundGpu& gpu : node.gpus) {
    const BridgeId bridge = top_bridge(node, gpu.bridge);
    if (bridge.exists() && index_of(slots.bridges, bridge) < 0) slots.bridges.push_back(bridge);
  }
  if (slots.bridges.size() > static_cast<std::size_t>(kMostSwitches) ||
      node.nics.size() > static_cast<std::size_t>(kMostSwitches))
    return why = "more PCIe switches or NICs than the brief form holds", false;
  const std::vector<int> sockets = sockets_of(node);
  if (!add_gpus(node, slots, sockets, shape, why) || !add_nics(node, slots, sockets, shape, why)) return false;
  const auto slot_speed = [&](double said) { return said > 0 ? said : figures.pcie; };
  const double pcie = slot_speed(node.gpus.front().bandwidth);
  for (const FoundGpu& gpu : node.gpus)
    if (!close(slot_speed(gpu.bandwidth), pcie)) return why = "GPUs differ in their PCIe links", false;
  for (const BridgeId bridge : slots.bridges) {
    const double up = node.bridges[bridge].bandwidth;
    if (up > 0 && !close(up, pcie)) return why = "PCIe switches are connected at another speed than GPUs", false;
  }
  shape.pcie_bandwidth = BytesPerSecond{rounded(pcie)};
  return true;
}

}  // namespace

std::optional<NodeShape> regular_node(FoundNode& node, const NodeFigures& figures, const Known& known,
                                      std::string& why) {
  NodeShape shape;
  if (!add_fabric(node, figures, known, shape, why) || !add_slots(node, figures, shape, why)) return std::nullopt;
  shape.pcie_latency = known.pcie_latency;
  shape.cpu = figures.vendor;
  if (shape.sockets > 1) {
    shape.socket_bandwidth = BytesPerSecond{figures.socket};
    shape.socket_latency = known.socket_latency;
  }
  shape.host_memory_bandwidth = BytesPerSecond{figures.memory};
  shape.nics = static_cast<int>(node.nics.size());
  if (shape.nics > 0) {
    shape.nic_bandwidth = BytesPerSecond{node.nics.front().speed};
    shape.nic_latency = known.nic_latency;
  }
  return shape;
}

std::vector<Graph::vertex_descriptor> add_node(Graph& graph, const FoundNode& node, const NodeFigures& figures,
                                               const Known& known, int index, const std::string& name,
                                               std::optional<Graph::vertex_descriptor> far_switch) {
  using Id = Graph::vertex_descriptor;
  const auto vertex = [&](VertexKind kind, const std::string& word, std::size_t i) {
    Vertex made;
    made.kind = kind;
    made.name = fmt::format("{}/{}{}", name, word, i);
    made.node = index;
    return boost::add_vertex(std::move(made), graph);
  };
  const auto link = [&](Id a, Id b, LinkKind kind, double bandwidth, Seconds latency) {
    boost::add_edge(a, b, Link{kind, BytesPerSecond{rounded(bandwidth)}, latency}, graph);
  };
  std::vector<Id> gpus, cpus, bridges, nics;
  for (std::size_t i = 0; i < node.gpus.size(); ++i) gpus.push_back(vertex(VertexKind::device, "gpu", i));
  for (std::size_t i = 0; i < node.cpus.size(); ++i) {
    cpus.push_back(vertex(VertexKind::cpu, "cpu", i));
    for (std::size_t j = 0; j < i; ++j)
      link(cpus[j], cpus[i], LinkKind::inter_socket, figures.socket, known.socket_latency);
    link(cpus[i], vertex(VertexKind::host_memory, "memory", i), LinkKind::memory, figures.memory, Seconds{0});
  }
  const auto above = [&](BridgeId bridge, int cpu) {
    return bridge ? bridges[bridge.index()] : cpus[static_cast<std::size_t>(cpu)];
  };
  const auto slot = [&](double said) { return said > 0 ? said : figures.pcie; };
  for (std::size_t i = 0; i < node.bridges.size(); ++i) {
    bridges.push_back(vertex(VertexKind::pcie_switch, "pcie", i));
    const FoundBridge& bridge = node.bridges[i];
    link(bridges[i], above(bridge.parent, bridge.cpu), LinkKind::pcie, slot(bridge.bandwidth), known.pcie_latency);
  }
  std::optional<Id> fabric = far_switch;
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const FoundGpu& gpu = node.gpus[i];
    link(gpus[i], above(gpu.bridge, gpu.cpu), LinkKind::pcie, slot(gpu.bandwidth), known.pcie_latency);
    if (gpu.switch_links > 0) {
      if (!fabric) fabric = vertex(VertexKind::nvswitch, "nvswitch", 0);
      link(gpus[i], *fabric, LinkKind::nvlink, gpu.switch_links * figures.nvlink, known.nvlink_latency / 2);
    }
    if (gpu.cpu_links > 0)
      link(gpus[i], cpus[static_cast<std::size_t>(gpu.cpu)], LinkKind::nvlink, gpu.cpu_links, known.nvlink_latency);
  }
  for (const MeshEdge& edge : node.edges)
    link(gpus[static_cast<std::size_t>(edge.a)], gpus[static_cast<std::size_t>(edge.b)], LinkKind::nvlink,
         edge.links * figures.nvlink, known.nvlink_latency);
  for (std::size_t i = 0; i < node.nics.size(); ++i) {
    nics.push_back(vertex(VertexKind::nic, "nic", i));
    const FoundNic& nic = node.nics[i];
    link(nics[i], above(nic.bridge, nic.cpu), LinkKind::pcie, slot(nic.bandwidth), known.pcie_latency);
  }
  return nics;
}

}  // namespace orrery::clusters
