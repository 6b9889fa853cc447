#pragma once
/// The worker's other task: measuring this machine for `orrery probe --measure`.
#include "apps/worker/options.h"
#include "exec/transport.h"
#include "exec/waiter.h"

namespace orrery::worker {

/// Waits of ranks that have nothing to do: they sleep, so that they do not disturb the rank that measures.
[[nodiscard]] exec::WaitPolicy sleeping_policy();

/// One rank. `host` waits by sleeping_policy. Prints events on rank 0. Returns the exit code.
[[nodiscard]] int probe(const Options& options, exec::Transport& host, int ranks_on_node);

}  // namespace orrery::worker
