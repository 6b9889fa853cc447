#pragma once
/// Seconds of copies between a rank's memories, and of the host's compute on the copied data.
///
/// GPUs: a copy takes network.copy.latency plus its bytes over the slowest link between the device and the nearest host
/// memory of its node, at network.copy.efficiency of the datasheet. Between that memory and the nearest socket's
/// drives, which are striped, it takes its bytes over their read or write rate, at network.copy.nvme_efficiency. The
/// closed form assumes that all devices of a node copy at once; a replay shares the links. CPU ranks:
/// network.copy.bandwidth and, for files, network.copy.file_bandwidth.
#include <array>

#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "models/operators/op.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

struct CopyRate {
  double latency = 0;            ///< s
  double alone = 0, shared = 0;  ///< bytes/s
};

struct HostRates {
  std::array<CopyRate, plan::kStreams> copies{};  ///< by stream
  double memory = 0;                              ///< bytes/s of a rank's share of the host's cores
};

[[nodiscard]] HostRates host_rates(const clusters::Cluster& cluster, const Calibration& calibration);

/// An operator over flat ranges on the host's cores: its bytes at the memory's rate, which hides the optimizer's
/// arithmetic (ZeRO-Offload, Ren et al. 2021, section 5.1).
[[nodiscard]] double host_op_time(const HostRates& rates, const models::Op& op);

}  // namespace orrery::cost
