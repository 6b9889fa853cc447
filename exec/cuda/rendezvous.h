#pragma once
/// How ranks find each other before NCCL works: small exchanges through the host's transport (MPI).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/engine/transport.h"

namespace orrery::exec::cuda {

/// Waits for a request of the host's transport, sleeping between tests; throws Failure after `deadline_s` seconds.
void finish(Request& request, const std::string& doing, double deadline_s);

/// Every rank's block of bytes, by rank. Blocks have equal sizes, a multiple of 4. Collective over `world`, a group of
/// all ranks of `host`.
[[nodiscard]] std::vector<std::byte> exchange(Transport& host, GroupId world, std::span<const std::byte> mine,
                                              double deadline_s);

/// A value that is equal for two ranks exactly if they use the same GPU of the same machine (unless a 64-bit hash
/// collides). `bus_id` as CUDA gives it.
[[nodiscard]] std::uint64_t gpu_identity(const std::string& bus_id);

/// True if two of the ranks' identities are equal.
[[nodiscard]] bool any_shared(std::span<const std::uint64_t> identities);

/// One message in one direction between two ranks.
struct Direction {
  int from = 0, to = 0;
  auto operator<=>(const Direction&) const = default;
};

/// Divides directions into rounds in which no rank is an end of two. All ranks that pass the same directions get the
/// same rounds.
[[nodiscard]] std::vector<std::vector<Direction>> rounds_of(std::vector<Direction> directions);

}  // namespace orrery::exec::cuda
