// Backend, workloads and messages for exec/probe; the measuring itself is there.
#include "apps/worker/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/units.h"
#include "exec/engine/cuda_loader.h"
#include "exec/failure.h"
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

int probe(const Options& options, exec::Transport& host, int on_node, int ranks_on_node,
          std::function<void(const std::string&)> on_failure) {
  constexpr std::int64_t kMostMessage = std::int64_t{64} << 20;
  const bool gpu = options.backend == "cuda";
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
  exec::CudaLoad cuda;
  std::unique_ptr<exec::Backend> backend = exec::make_cpu_backend(p.threads);
  std::unique_ptr<exec::Transport> devices;
  if (gpu) {
    cuda = exec::load_cuda({std::filesystem::read_symlink("/proc/self/exe").parent_path().string()});
    if (!cuda.module) throw exec::Failure(cuda.reason, exec::FailureKind::environment);
    if (ranks_on_node > cuda.module->devices())
      throw exec::Failure(fmt::format("{} ranks would share {}, and measure how it is shared", ranks_on_node,
                                      base::count_of(cuda.module->devices(), "GPU")),
                          exec::FailureKind::environment);
    backend = cuda.module->make_backend(cuda.module->device_for(on_node), std::move(backend), {});
    devices = cuda.module->make_transport(*backend, host, {.on_failure = std::move(on_failure)});
    p.oversubscribed = false;
  }
  exec::Transport& transport = devices ? *devices : host;
  const exec::Waiter waiter(
      exec::wait_policy(ranks_on_node * p.threads, exec::available_cores(), std::chrono::minutes(5)));
  const std::int64_t most_message = std::min(kMostMessage, p.most_bytes / 4);
  const bool fp8 = backend->refusal(models::DType::fp8).empty();
  static_cast<void>(exec::run_probe(
      exec::standard_workloads(p.most_bytes, gpu ? exec::ProbedDevice::gpu : exec::ProbedDevice::core, fp8),
      exec::standard_messages(host.size(), most_message), *backend, transport, waiter, p));
  return 0;
}

}  // namespace orrery::worker
