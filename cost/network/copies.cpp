/// Rates of copies by stream.
#include "cost/network/copies.h"

#include <algorithm>

#include "clusters/host_paths.h"

namespace orrery::cost {

HostRates host_rates(const clusters::Cluster& cluster, const Calibration& c) {
  HostRates out;
  const auto rate = [&](plan::Stream stream) -> CopyRate& { return out.copies[static_cast<std::size_t>(stream)]; };
  const double latency = c.get("network.copy.latency", 0);
  if (cluster.device().kind == clusters::DeviceKind::cpu) {
    const double memory = c.get("network.copy.bandwidth", 1e9), file = c.get("network.copy.file_bandwidth", 1e9);
    rate(plan::Stream::to_host) = rate(plan::Stream::from_host) = {latency, memory, memory};
    rate(plan::Stream::to_nvme) = rate(plan::Stream::from_nvme) = {latency, file, file};
    return out;
  }
  const clusters::HostPaths paths(cluster);
  const double reached = c.get("network.copy.efficiency", 1);
  const double shares = c.get("network.inter.efficiency", 1);  // share of a link that all transfers together achieve
  double alone = 0, shared = 0, way = 0;
  clusters::HostPath files;
  if (!cluster.device_vertices.empty()) {
    const clusters::HostPath path = paths.to_memory(0);
    if (!path.links.empty()) {
      alone = path.bandwidth.value;
      way = path.latency.value;
      shared = paths.shared_to_memory().value;
    }
    files = paths.to_drives(0);
  }
  if (alone == 0) {  // the graph has no hosts: use whatever connects the devices
    const double pcie = cluster.shape ? cluster.shape->node.pcie_bandwidth.value : 0;
    alone = shared = pcie > 0 ? pcie : cluster.intra.bandwidth.value;
  }
  rate(plan::Stream::to_host) =
      rate(plan::Stream::from_host) = {latency + way, alone * reached, std::min(alone * reached, shared * shares)};
  if (!files.links.empty()) {
    const double most = std::max(cluster.nvme.read.value, cluster.nvme.write.value);
    const double drives = c.get("network.copy.nvme_efficiency", 1), together = paths.shared_to_drives().value;
    const auto rate_of = [&](base::BytesPerSecond direction) {
      const double share = most > 0 ? direction.value / most : 1;  // the graph's link has the faster direction's rate
      return CopyRate{latency + files.latency.value, files.bandwidth.value * share * drives,
                      std::min(files.bandwidth.value * drives, together * shares) * share};
    };
    rate(plan::Stream::to_nvme) = rate_of(cluster.nvme.write);
    rate(plan::Stream::from_nvme) = rate_of(cluster.nvme.read);
  }
  out.memory = cluster.host_memory.read.value * c.get("device.host.efficiency", 1) * c.get("stack.host_share", 1) /
               std::max(1, cluster.devices_per_node);
  return out;
}

double host_op_time(const HostRates& rates, const models::Op& op) {
  return rates.memory > 0 ? models::bytes_of(op) / rates.memory : 0;
}

}  // namespace orrery::cost
