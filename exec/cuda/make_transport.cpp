// Chooses between NCCL and staging through the host; every rank makes the same choice.
#include <fmt/core.h>

#include <array>
#include <cstring>
#include <optional>

#include "exec/cuda/nccl_transport.h"

namespace orrery::exec::cuda {
namespace {

struct Meeting {
  Transport& host;
  GroupId world;
  const CudaTransportOptions& options;

  template <class T>
  [[nodiscard]] std::vector<T> exchanged(const T& mine) const {
    const std::vector<std::byte> all =
        exchange(host, world, std::as_bytes(std::span(&mine, 1)), options.start_timeout_s);
    std::vector<T> values(static_cast<std::size_t>(host.size()));
    std::memcpy(values.data(), all.data(), all.size());
    return values;
  }
};

/// NCCL's settings must be in place before its first call, and equal on all ranks.
void prepare_environment(const Meeting& meeting, int device) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "asking for the GPU's bus id");
  const auto identities = meeting.exchanged(gpu_identity(bus.data()));
  if (any_shared(identities)) apply_environment(shared_gpu_environment(meeting.host.rank()));
}

/// The communicator over all ranks, or nothing and this rank's reason.
std::optional<NcclComm> join_world(const Meeting& meeting, std::string& reason) {
  ncclUniqueId id{};
  // If rank 0 cannot make an id it sends zeros, and every rank sees that.
  if (meeting.host.rank() == 0 && ncclGetUniqueId(&id) != ncclSuccess) id = {};
  id = meeting.exchanged(id).front();
  const ncclUniqueId none{};
  if (std::memcmp(&id, &none, sizeof(id)) == 0) {
    reason = "rank 0 could not make an NCCL id";
    return std::nullopt;
  }
  const auto timeout = std::chrono::duration<double>(meeting.options.start_timeout_s);
  try {
    return NcclComm(id, meeting.host.size(), meeting.host.rank(),
                    Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout));
  } catch (const Failure& failure) {
    reason = failure.what();
    return std::nullopt;
  }
}

}  // namespace

std::unique_ptr<Transport> make_cuda_transport(CudaBackend& backend, Transport& host,
                                               const CudaTransportOptions& options) {
  const bool wanted = host.maximum(options.nccl ? 0 : 1) == 0;
  if (!wanted) return std::make_unique<StagedTransport>(backend, host, "switched off");
  if (host.size() == 1) return std::make_unique<StagedTransport>(backend, host, "one rank");
  const Meeting meeting{host, host.make_group({"world", {{1, host.size()}}}), options};
  prepare_environment(meeting, backend.device());
  std::string reason = "another rank could not join";
  std::optional<NcclComm> world = join_world(meeting, reason);
  if (host.maximum(world ? 0 : 1) == 0)
    return std::make_unique<NcclTransport>(backend, host, std::move(*world), options);
  if (world) world->abort();  // another rank could not join, so none will answer a farewell
  return std::make_unique<StagedTransport>(backend, host, reason);
}

}  // namespace orrery::exec::cuda
