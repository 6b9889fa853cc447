#pragma once
/// What a checkpoint costs: its bytes by rank, for how long it holds the steps up, and how long the disk takes behind
/// them. Checkpoints are written as exec/state/checkpoint.h does: every rank copies what it alone owns to the host, a
/// thread writes that while the next steps run, and the checkpoint gets its name once all ranks have written.
#include <vector>

#include "cost/parameters/calibration.h"
#include "cost/prices/pricing.h"
#include "cost/run/goodput.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// Bytes of what each rank writes: weights (masters, where there are any) and the optimizer's states in fp32, each
/// element once over all ranks. The files' headers, some hundred bytes a tensor, are left out.
[[nodiscard]] std::vector<double> checkpoint_bytes_by_rank(const plan::Schedule& schedule);

/// What the price depends on.
struct CheckpointSize {
  double bytes = 0;         ///< of all ranks
  double largest_rank = 0;  ///< of the rank that writes most
  double largest_node = 0;  ///< of the node whose ranks write most together
};
[[nodiscard]] CheckpointSize checkpoint_size(const std::vector<double>& bytes_by_rank, int ranks_per_node);

/// Seconds.
struct CheckpointPrice {
  double copy = 0;    ///< to the host: the steps wait
  double write = 0;   ///< to the disk, synced: the steps go on
  double commit = 0;  ///< manifest, name, and the oldest checkpoint removed: the steps wait
  [[nodiscard]] double pause() const { return copy + commit; }
};
/// copy = B_rank / device.checkpoint.copy_bandwidth (+, of a device's memory, a copy to the host,
/// cost/network/copies.h); write = network.storage.write_latency + B_node / network.storage.write_bandwidth; commit =
/// network.storage.commit_time.
[[nodiscard]] CheckpointPrice checkpoint_price(const CheckpointSize& size, const Pricing& pricing);

/// From the end of a checkpoint's pause until it is durable. That it is written is seen at the end of a step of `step`
/// seconds.
[[nodiscard]] double persist_time(double write, double step);

}  // namespace orrery::cost
