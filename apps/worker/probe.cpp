// Backend, workloads and messages for exec/probe; the measuring itself is there.
#include "apps/worker/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "exec/probe/run_probe.h"

namespace orrery::worker {

exec::WaitPolicy sleeping_policy() {
  exec::WaitPolicy policy;
  policy.spins = 0;
  policy.yields = 0;
  policy.nap = std::chrono::microseconds(50);
  policy.longest_nap = std::chrono::milliseconds(2);
  policy.deadline = std::chrono::minutes(5);
  return policy;
}

int probe(const Options& options, exec::Transport& host, int ranks_on_node) {
  constexpr std::int64_t kMostMessage = std::int64_t{64} << 20;
  exec::ProbeOptions p;
  p.threads = std::max(1, options.threads);
  p.budget_s = static_cast<double>(options.budget_s);
  if (options.most_bytes > 0) p.most_bytes = options.most_bytes;
  p.stream_bytes = options.stream_bytes;
  p.oversubscribed = p.threads * ranks_on_node > exec::available_cores();
  p.report = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const auto backend = exec::make_cpu_backend(p.threads);
  const exec::Waiter waiter(
      exec::wait_policy(ranks_on_node * p.threads, exec::available_cores(), std::chrono::minutes(5)));
  const std::int64_t most_message = std::min(kMostMessage, p.most_bytes / 4);
  static_cast<void>(exec::run_probe(exec::standard_workloads(p.most_bytes),
                                    exec::standard_messages(host.size(), most_message), *backend, host, waiter, p));
  return 0;
}

}  // namespace orrery::worker
