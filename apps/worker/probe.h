#pragma once
/// The worker's other task: measuring this machine for `orrery probe --measure`.
#include <functional>
#include <string>

#include "apps/worker/options.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"

namespace orrery::worker {

/// How idle ranks wait: they sleep, so that they do not disturb the rank that measures.
[[nodiscard]] exec::WaitPolicy sleeping_policy();

/// Runs one rank, number `on_node` on its machine. `host` waits by sleeping_policy. Prints events on rank 0. Returns
/// the exit code. Throws exec::Failure if --backend cuda does not find a GPU for each rank. `on_failure`: as in
/// exec::CudaTransportOptions.
[[nodiscard]] int probe(const Options& options, exec::Transport& host, int on_node, int ranks_on_node,
                        std::function<void(const std::string&)> on_failure);

}  // namespace orrery::worker
