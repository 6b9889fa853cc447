#pragma once
/// A cluster file for CPU ranks on a described machine: one device per core. Every number has its source beside
/// it.
#include <optional>
#include <string>

#include "exec/probe/description.h"

namespace orrery::exec {

/// What --measure adds to a description.
struct MeasuredMemory {
  double one_core_bytes_per_s = 0;                        ///< streaming, one rank alone
  double all_cores_bytes_per_s = 0;                       ///< streaming, all ranks at once, their sum
  double message_bytes_per_s = 0, message_latency_s = 0;  ///< between two ranks; 0: only one rank, not measured
  std::string date;                                       ///< "2026-11-20"
};

struct ClusterFileOptions {
  std::string name;
  int ranks = 1;
  std::optional<MeasuredMemory> measured;
};

/// The device's name: the processor's, to which calibrations are bound.
[[nodiscard]] std::string device_name(const Processor& processor);
/// fp32 FLOP/s of one core: clock x operations per cycle.
[[nodiscard]] double core_peak(const Processor& processor);
/// The cache that one rank has to itself: the outermost that no other core shares, else its share of the innermost.
[[nodiscard]] Sourced own_cache(const MachineDescription& machine);

[[nodiscard]] std::string cluster_file(const MachineDescription& machine, const ClusterFileOptions& options);

}  // namespace orrery::exec
