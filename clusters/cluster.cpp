/// Properties of a Cluster that need no graph, the names of its parts, and the same cluster at another size.
#include "clusters/cluster.h"

#include <fmt/core.h>

#include "base/ensure.h"
#include "clusters/build.h"
#include "clusters/limits.h"
#include "clusters/read.h"

namespace orrery::clusters {

FlopsPerSecond Cluster::peak(const std::string& dtype) const {
  // A dtype that a device lacks runs at the rate of the dtype that it would be computed in.
  static const std::map<std::string, std::vector<std::string>> kFallbacks = {{"bf16", {"fp16", "fp32"}},
                                                                             {"fp16", {"bf16", "fp32"}},
                                                                             {"fp8", {"bf16", "fp16", "fp32"}},
                                                                             {"fp4", {"fp8", "bf16", "fp16", "fp32"}},
                                                                             {"tf32", {"fp32"}}};
  const auto& peaks = device().peak;
  if (const auto found = peaks.find(dtype); found != peaks.end()) return found->second;
  if (const auto others = kFallbacks.find(dtype); others != kFallbacks.end()) {
    for (const std::string& other : others->second) {
      if (const auto found = peaks.find(other); found != peaks.end()) return found->second;
    }
  }
  return device().vector_peak;
}

base::Result<Cluster> resized(const Cluster& cluster, int devices) {
  if (devices == cluster.size()) return cluster;
  if (!cluster.shape) {
    return base::fail("C09", fmt::format("cluster '{}' is given link by link and cannot be resized", cluster.name),
                      "describe it by node and fabric, or use all of its devices");
  }
  const int per_node = cluster.devices_per_node;
  const bool whole_nodes = devices > 0 && devices % per_node == 0;
  const bool part_of_node = devices > 0 && devices < per_node;
  if (!whole_nodes && !part_of_node) {
    return base::fail(
        "C10", fmt::format("{} devices are neither whole nodes of {} nor fewer than one node", devices, per_node),
        fmt::format("use 1 to {}, or a multiple of {}", per_node, per_node));
  }
  Cluster result = cluster;
  result.nodes = whole_nodes ? devices / per_node : 1;
  NodeShape& node = result.shape->node;
  if (node.fabric == NodeFabric::torus) {
    if (part_of_node) {
      return base::fail("C10", fmt::format("{} devices are fewer than a node of the torus", devices),
                        fmt::format("use a multiple of {}", per_node));
    }
    result.shape->network.kind = "torus";
    result.shape->network.torus = torus_for(node.block, result.nodes);
  } else if (whole_nodes && result.nodes > 1 && node.nics == 0) {
    return base::fail("C08", fmt::format("the nodes of '{}' have no NICs, so it can have only one node", cluster.name),
                      "add 'nics' to 'node'");
  }
  if (whole_nodes && vertices_of(node, result.nodes, per_node) > kMostVertices) {
    return base::fail("C11", fmt::format("{} devices make a larger graph than Orrery builds", devices),
                      fmt::format("it builds graphs of up to {:.0f} vertices", kMostVertices));
  }
  if (part_of_node) {
    // Devices 0..n-1 keep the switches and NICs that they have in the full node.
    const auto share = [&](int count) { return (count * devices + per_node - 1) / per_node; };
    result.devices_per_node = devices;
    result.power.host.value *= static_cast<double>(devices) / per_node;
    node.pcie_switches = share(node.pcie_switches);
    node.nics = share(node.nics);
    std::erase_if(node.edges, [&](const MeshEdge& e) { return e.a >= devices || e.b >= devices; });
    while (node.boards > 1 && devices % node.boards != 0) --node.boards;
    if (devices <= per_node / node.boards) node.boards = 1;
  }
  build(result);
  result.text = write_cluster(result);
  return result;
}

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu: return "gpu";
    case DeviceKind::accelerator: return "accelerator";
    case DeviceKind::cpu: return "cpu";
  }
  return "";
}

const char* word_for(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu: return "GPU";
    case DeviceKind::accelerator: return "chip";
    case DeviceKind::cpu: return "rank";
  }
  return "";
}

const char* name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::cpu: return "cpu";
    case Architecture::volta: return "volta";
    case Architecture::ampere: return "ampere";
    case Architecture::hopper: return "hopper";
    case Architecture::blackwell: return "blackwell";
    case Architecture::generic: return "generic";
  }
  return "";
}

const std::vector<std::string>& architecture_words() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all;
    for (int i = 0; i <= static_cast<int>(Architecture::generic); ++i)
      all.emplace_back(name_of(static_cast<Architecture>(i)));
    return all;
  }();
  return words;
}

const char* name_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::device: return "device";
    case VertexKind::nvswitch: return "nvswitch";
    case VertexKind::pcie_switch: return "pcie-switch";
    case VertexKind::cpu: return "cpu";
    case VertexKind::nic: return "nic";
    case VertexKind::leaf: return "leaf";
    case VertexKind::spine: return "spine";
    case VertexKind::core: return "core";
    case VertexKind::host_memory: return "host-memory";
    case VertexKind::nvme: return "nvme";
  }
  return "";
}

const char* name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "nvlink";
    case LinkKind::pcie: return "pcie";
    case LinkKind::inter_socket: return "inter-socket";
    case LinkKind::network: return "network";
    case LinkKind::memory: return "memory";
    case LinkKind::frontend: return "frontend";
  }
  return "";
}

}  // namespace orrery::clusters
