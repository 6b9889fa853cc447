#pragma once
/// Counts of messages whose size depends on data (plan::CountedRows): how the host comes to know them.
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "exec/engine/operands.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"

namespace orrery::exec {

/// Those of the device's messages: the host must read them before it starts the message, and waits only once for the
/// counts of several.
class MessageCounts {
 public:
  /// All references must outlive this.
  MessageCounts(Backend& backend, Transport& transport, const Waiter& waiter, const Arena& arena,
                const Operands& operands)
      : backend_(backend), transport_(transport), waiter_(waiter), arena_(arena), operands_(operands) {}

  /// The device has messages with these counts.
  void expect(const plan::CountedRows& counted);
  /// What a step writes is no longer known.
  void forget(const plan::Step& step);
  /// The counts' addresses, looked up while their buffers live.
  struct At {
    const std::byte *sent = nullptr, *received = nullptr;
  };
  /// Waits until a message's counts are known, behind these points of the device's work. Counts of later messages that
  /// compute has written by now are fetched too.
  void fetch(const plan::CountedRows& counted, const At& at, const Instance& of, const Points& behind);
  /// Once fetched.
  [[nodiscard]] const std::vector<std::int32_t>& known(int view, const Instance& of) const {
    return counts_.at({view, of.micro_batch});
  }

 private:
  static constexpr std::size_t kLane = plan::kStreams;  ///< of Backend::queue_copy
  [[nodiscard]] std::size_t words(int view) const { return static_cast<std::size_t>(operands_.view_at(view).elements); }

  Backend& backend_;
  Transport& transport_;
  const Waiter& waiter_;
  const Arena& arena_;
  const Operands& operands_;
  std::map<std::pair<int, std::int32_t>, std::vector<std::int32_t>> counts_;  ///< by view and micro-batch
  std::set<int> views_;                                                       ///< of all messages
  std::map<plan::BufferId, bool> computed_;  ///< by their buffer: compute has written it, no message
  std::span<std::byte> room_;                ///< where the device copies them to
};

}  // namespace orrery::exec
