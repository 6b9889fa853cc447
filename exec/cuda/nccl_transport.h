#pragma once
/// Communication of device memory by NCCL. The ranks find each other through the host's transport; groups are split
/// from one communicator over all ranks, and so is a communicator for each direction between two ranks. Each has a
/// stream. An operation begins after the points that it is given, ordered by events without waiting; Request::ends
/// orders what follows in the same way. A watchdog watches the operations in flight, because the host does not.
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "exec/cuda/backend.h"
#include "exec/cuda/nccl_comm.h"
#include "exec/cuda/rendezvous.h"
#include "exec/cuda/staged_transport.h"
#include "exec/cuda/watchdog.h"
#include "exec/engine/cuda_loader.h"
#include "exec/engine/transport.h"

namespace orrery::exec::cuda {

class NcclTransport final : public Transport {
 public:
  /// `world` spans all ranks of `host`.
  NcclTransport(CudaBackend& backend, Transport& host, NcclComm world, const CudaTransportOptions& options);
  ~NcclTransport() override;

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  [[nodiscard]] GroupId make_group(const plan::Group& group) override;
  [[nodiscard]] std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype,
                                                    std::byte* data, std::int64_t elements) override;
  [[nodiscard]] std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source,
                                                    std::byte* target, std::int64_t elements_per_rank) override;
  [[nodiscard]] std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                                        std::byte* target, std::int64_t elements_per_rank) override;
  [[nodiscard]] std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source,
                                                    std::byte* target, std::int64_t elements_per_rank) override;
  /// A message to each member and one from it, with the counted number of elements (possibly none), in one group call.
  [[nodiscard]] std::unique_ptr<Request> all_to_all_counted(GroupId group, models::DType dtype, const std::byte* source,
                                                            std::byte* target, std::int64_t slot,
                                                            const std::vector<std::int64_t>& sent,
                                                            const std::vector<std::int64_t>& received) override;
  /// Between ranks that `connect` named; others are staged through the host.
  [[nodiscard]] std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                              std::int64_t elements) override;
  [[nodiscard]] std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                                 std::int64_t elements) override;
  void connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) override;
  /// Whether messages can hold values of this type; if not, a message is a Failure that names the type.
  [[nodiscard]] static bool communicates(models::DType dtype);
  [[nodiscard]] bool queues() const override { return true; }
  void prepare(Preparation preparation) override { next_ = std::move(preparation); }
  void mark_operations(bool on) override { marks_ = on; }
  void watch(std::string what, std::shared_ptr<const Point> begin, std::shared_ptr<const Point> end) override {
    watchdog_.add(std::move(what), std::move(begin), std::move(end));
  }
  void barrier() override { host_.barrier(); }
  [[nodiscard]] std::vector<std::string> gather_text(const std::string& text) override {
    return host_.gather_text(text);
  }
  [[nodiscard]] double maximum(double value) override { return host_.maximum(value); }

  /// Throws Failure if a communicator has failed or an operation has passed its deadline; by then everything is being
  /// aborted.
  void check_health() override { watchdog_.check(); }
  [[nodiscard]] const Watchdog& watchdog() const { return watchdog_; }

 private:
  struct Channel {
    NcclComm comm;  ///< empty in a group of one
    int size = 1;
    Stream stream;
  };
  /// Queues `operation` on the channel's stream, after all compute queued so far.
  template <class Operation>
  [[nodiscard]] std::unique_ptr<Request> start(Channel& channel, const char* doing, const Operation& operation);
  /// Orders the channel's stream after the points that the next operation must follow.
  [[nodiscard]] std::string begin(Channel& channel, const char* doing);
  /// A slot of source and target for each member, with the number of elements sent to it and received from it.
  struct Slots {
    models::DType dtype;
    const std::byte* source;
    std::byte* target;
    std::size_t bytes;  ///< from one slot to the next
    std::function<std::int64_t(int member)> sent, received;
  };
  [[nodiscard]] std::unique_ptr<Request> exchange_slots(Channel& channel, const Slots& slots);
  [[nodiscard]] std::unique_ptr<Request> copy_alone(Channel& channel, const std::byte* source, std::byte* target,
                                                    std::size_t bytes);
  [[nodiscard]] Channel& group(GroupId id) { return *groups_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Clock::time_point start_deadline() const;
  template <class Body>
  void each_communicator(const Body& body);
  /// Ends everything in flight, and the communicators. Takes as long as NCCL needs.
  void abort_all();
  /// A part of the world with a stream of its own. Gives up if that is not possible.
  [[nodiscard]] std::unique_ptr<Channel> split_off(int size, int colour, int key);

  CudaBackend& backend_;
  Transport& host_;
  CudaTransportOptions options_;
  StagedTransport staged_;  ///< for ranks that are not connected
  NcclComm world_;
  std::vector<std::unique_ptr<Channel>> groups_;
  std::map<Direction, std::unique_ptr<Channel>> directions_;
  std::mutex channels_lock_;  ///< for the two above, which the watchdog walks
  Preparation next_;
  bool marks_ = false;
  Watchdog watchdog_;  ///< last: it uses all the others
};

/// The transport for `backend`: NCCL if every rank can use it, else staging through the host; all ranks agree.
/// Collective over all ranks of `host`.
[[nodiscard]] std::unique_ptr<Transport> make_cuda_transport(CudaBackend& backend, Transport& host,
                                                             const CudaTransportOptions& options);

}  // namespace orrery::exec::cuda
