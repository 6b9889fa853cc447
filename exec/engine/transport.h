#pragma once
/// Transport: how ranks exchange bytes. Nonblocking operations return a Request. All waiting goes through Waiter, which
/// sleeps when ranks outnumber cores (MPICH only spins). Implemented by MPI, threads of one process (unit tests) and
/// NCCL. Where memory is a device's and the transport has queues there (NCCL), points order operations instead.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/engine/request.h"
#include "exec/failure.h"
#include "models/dtype.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// A process group of this rank (plan::GroupId is one of the schedule). All ranks make groups together, in one order.
using GroupId = int;

/// What the next operation needs to know besides its operands.
struct Preparation {
  /// Transports that queue: the operation begins after these points; empty: after all compute queued so far.
  Points behind = {};
  std::string what = {};  ///< for failure messages
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual GroupId make_group(const plan::Group& group) = 0;  ///< collective over all ranks
  [[nodiscard]] virtual std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype,
                                                            std::byte* data, std::int64_t elements) = 0;
  /// target holds group size * elements values; source may be the rank's own place in target.
  [[nodiscard]] virtual std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source,
                                                            std::byte* target, std::int64_t elements_per_rank) = 0;
  [[nodiscard]] virtual std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype,
                                                                const std::byte* source, std::byte* target,
                                                                std::int64_t elements_per_rank) = 0;
  /// source and target hold group size * elements values; piece i of the source goes to member i.
  [[nodiscard]] virtual std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source,
                                                            std::byte* target, std::int64_t elements_per_rank) {
    static_cast<void>(group), static_cast<void>(dtype), static_cast<void>(source), static_cast<void>(target),
        static_cast<void>(elements_per_rank);
    throw Failure("the " + name() + " transport has no all-to-all yet: only CPU ranks exchange 16-bit gradients",
                  FailureKind::environment);
  }
  /// The same for partly filled slots of `slot` elements each: sent[i] elements of the source's slot i go to member i,
  /// and received[i] come from it into the target's slot i. Sender and receiver must agree.
  [[nodiscard]] virtual std::unique_ptr<Request> all_to_all_counted(GroupId group, models::DType dtype,
                                                                    const std::byte* source, std::byte* target,
                                                                    std::int64_t slot,
                                                                    const std::vector<std::int64_t>& sent,
                                                                    const std::vector<std::int64_t>& received) {
    static_cast<void>(group), static_cast<void>(dtype), static_cast<void>(source), static_cast<void>(target),
        static_cast<void>(slot), static_cast<void>(sent), static_cast<void>(received);
    throw Failure("the " + name() + " transport has no all-to-all of counted rows yet: only CPU ranks exchange them",
                  FailureKind::environment);
  }
  [[nodiscard]] virtual std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                                      std::int64_t elements) = 0;
  [[nodiscard]] virtual std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                                         std::int64_t elements) = 0;
  /// Collective over all ranks, before the first send or receive: the ranks that this one sends to and receives from. A
  /// transport without tags (NCCL) needs a channel per direction, because two ranks that send to each other at the same
  /// time would block. There, messages of one direction match in order, and tags must come in the same order on both
  /// sides.
  virtual void connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) {
    static_cast<void>(send_to);
    static_cast<void>(receive_from);
  }
  /// True if operations join the device's queues when started: the host waits neither before nor after, and
  /// Request::ends orders what follows. A transport that queues may be captured in a graph.
  [[nodiscard]] virtual bool queues() const { return false; }
  // NOLINTBEGIN(performance-unnecessary-value-param): those who override these keep what they are given
  /// Applies only to the next operation.
  virtual void prepare(Preparation preparation) { static_cast<void>(preparation); }
  /// Whether operations mark their beginning and end (Request::marks).
  virtual void mark_operations(bool on) { static_cast<void>(on); }
  /// Throws Failure if queued operations have failed since.
  virtual void check_health() {}
  /// A graph with operations of this transport has been queued between two points; watches them like other operations.
  virtual void watch(std::string what, std::shared_ptr<const Point> begin, std::shared_ptr<const Point> end) {
    static_cast<void>(what), static_cast<void>(begin), static_cast<void>(end);
  }
  // NOLINTEND(performance-unnecessary-value-param)
  /// Small exchanges on the host outside the schedule (clock offsets, gathering timelines, agreement on failure).
  virtual void barrier() = 0;
  [[nodiscard]] virtual std::vector<std::string> gather_text(
      const std::string& text) = 0;  ///< returned on rank 0, by rank
  [[nodiscard]] virtual double maximum(double value) = 0;
};

}  // namespace orrery::exec
