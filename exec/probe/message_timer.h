#pragma once
/// Times messages between ranks as the executor sends them: nonblocking calls of a Transport, finished by a Waiter.
#include <cstdint>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"

namespace orrery::exec {

enum class MessageKind { all_reduce, all_gather, reduce_scatter, send };
[[nodiscard]] const char* name_of(MessageKind kind);  ///< as coefficients call it: "all_reduce"

/// A collective over the first `ranks` ranks, or a message from rank 0 to rank 1.
struct MessageCase {
  MessageKind kind{};
  int ranks = 2;
  std::int64_t bytes = 0;  ///< of the full vector: all ranks' parts together (plan::Step::message_bytes)
  /// reduce_scatter: the rank's own part is reduced in place, within the full vector, as in ZeRO-1.
  bool in_place = false;
};

struct MessageTime {
  MessageCase at;
  double seconds = 0;  ///< from when the last member is ready until the last has finished
};

/// 2, 4, 8 .. ranks, up to all; sizes from 1 KiB to 64 MiB in steps of four.
[[nodiscard]] std::vector<MessageCase> standard_messages(int ranks, std::int64_t most_bytes);

/// Samples one case at a time. Collective over ALL ranks of the transport; those outside a case take no part. All ranks
/// share one machine's clock, so their times can be compared.
class MessageTimer {
 public:
  /// Collective: makes the groups. Buffers hold the largest case and are in the backend's memory.
  MessageTimer(const std::vector<MessageCase>& cases, Backend& backend, Transport& transport, const Waiter& waiter);
  /// One sample: begin and end on this rank's clock in nanoseconds; {0, 0} on ranks outside the case.
  struct Interval {
    std::int64_t begin = 0, end = 0;
  };
  [[nodiscard]] Interval sample(const MessageCase& one);

 private:
  void meet(int group_ranks);
  [[nodiscard]] std::unique_ptr<Request> start(const MessageCase& one);

  Backend& backend_;
  Transport& transport_;
  const Waiter& waiter_;
  std::vector<std::pair<int, GroupId>> groups_;  ///< by number of ranks
  std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::byte* flag_ = nullptr;
};

/// From each rank's intervals of the same samples: the median over samples of (last end - last begin).
[[nodiscard]] double message_seconds(const std::vector<std::vector<MessageTimer::Interval>>& by_rank);

}  // namespace orrery::exec
