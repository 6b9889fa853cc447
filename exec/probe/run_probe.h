#pragma once
/// The measurement itself, on every rank: operators on one rank alone, the same on all at once, memory streams,
/// messages. Rank 0 reports.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"
#include "exec/probe/measured.h"

namespace orrery::exec {

struct ProbeOptions {
  double budget_s = 40;                 ///< time to measure for; the minimum number of samples is taken anyway
  std::int64_t most_bytes = 1LL << 30;  ///< of one workload, per rank
  std::int64_t stream_bytes = 0;        ///< of one array too large for any cache, per rank; 0: 64 MiB
  int rounds = 3;                       ///< visits to each workload, far apart in time
  int least_passes = 3;                 ///< per workload, over all rounds
  int message_samples = 5;              ///< per message and round
  int threads = 1;
  bool oversubscribed = false;
  std::function<void(const std::string& line)> report;  ///< events on rank 0; may be empty
};

/// Collective. The transport's own waits (barrier, maximum) should sleep, because idle ranks must not disturb the one
/// that measures. `waiter` finishes messages, as in training. Rank 0 returns the measurements; on other ranks the lists
/// are empty.
[[nodiscard]] Measured run_probe(const std::vector<Workload>& workloads, const std::vector<MessageCase>& messages,
                                 Backend& backend, Transport& transport, const Waiter& waiter,
                                 const ProbeOptions& options);

}  // namespace orrery::exec
