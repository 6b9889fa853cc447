#pragma once
/// The cost of a checkpoint: its bytes by rank, how long it pauses the steps, and how long the disk takes after that.
/// Checkpoints are written as in exec/state/checkpoint.h: every rank copies to the host what only it owns, a thread
/// writes that while the next steps run, and the checkpoint gets its name once all ranks have written.
#include <vector>

#include "cost/parameters/calibration.h"
#include "cost/prices/pricing.h"
#include "cost/run/goodput.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// Bytes that each rank writes: weights (masters, if any) and optimizer states in fp32, each element once over all
/// ranks. Excludes the file headers, a few hundred bytes per tensor.
[[nodiscard]] std::vector<double> checkpoint_bytes_by_rank(const plan::Schedule& schedule);

/// The sizes that the price depends on.
struct CheckpointSize {
  double bytes = 0;         ///< over all ranks
  double largest_rank = 0;  ///< by the rank that writes most
  double largest_node = 0;  ///< by the node that writes most
};
[[nodiscard]] CheckpointSize checkpoint_size(const std::vector<double>& bytes_by_rank, int ranks_per_node);

/// Seconds.
struct CheckpointPrice {
  double copy = 0;    ///< to the host: steps wait
  double write = 0;   ///< to the disk, synced: steps continue
  double commit = 0;  ///< manifest, name, and removal of the oldest checkpoint: steps wait
  [[nodiscard]] double pause() const { return copy + commit; }
};
/// copy = B_rank / device.checkpoint.copy_bandwidth (plus, from device memory, a copy to the host,
/// cost/network/copies.h); write = network.storage.write_latency + B_node / network.storage.write_bandwidth; commit =
/// network.storage.commit_time.
[[nodiscard]] CheckpointPrice checkpoint_price(const CheckpointSize& size, const Pricing& pricing);

/// Seconds from the end of a checkpoint's pause until it is durable. The end of writing is noticed at the end of a step
/// of `step` seconds.
[[nodiscard]] double persist_time(double write, double step);

}  // namespace orrery::cost
