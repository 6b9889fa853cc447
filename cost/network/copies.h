#pragma once
/// Seconds of copies between a rank's memories, and of what the host's cores compute on what was copied.
///
/// GPUs: a copy takes network.copy.latency and its bytes over the slowest link between the device and the nearest host
/// memory of its node, at network.copy.efficiency of the datasheet; between that memory and the nearest socket's
/// drives, which are striped, over what they read or write, at network.copy.nvme_efficiency. The closed form has all
/// devices of a node copy at once; a replay shares the links out. CPU ranks: network.copy.bandwidth and, to files,
/// network.copy.file_bandwidth.
#include <array>

#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "models/op.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

struct CopyRate {
  double latency = 0;            ///< s
  double alone = 0, shared = 0;  ///< bytes/s
};

struct HostRates {
  std::array<CopyRate, plan::kStreams> copies{};  ///< by stream
  double memory = 0;                              ///< bytes/s that a rank's share of the host's cores moves
};

[[nodiscard]] HostRates host_rates(const clusters::Cluster& cluster, const Calibration& calibration);

/// An operator over flat ranges on the host's cores: its bytes at the memory's rate (the optimizer's arithmetic hides
/// behind them: ZeRO-Offload, Ren et al. 2021, section 5.1).
[[nodiscard]] double host_op_time(const HostRates& rates, const models::Op& op);

}  // namespace orrery::cost
