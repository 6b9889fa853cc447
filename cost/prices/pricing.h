#pragma once
/// Pricing: seconds and bytes of the pieces of a Schedule on one cluster with one stack. Built once, called often: op
/// times are memoised by shape, collectives by (kind, bytes, group shape). What each price includes, so that nothing is
/// counted twice:
///
///   op_time          one operator alone: arithmetic or memory traffic, plus stack.op_overhead
///                    (and stack.load_overhead for load_tokens)
///   compute_time     of a step: sum of its ops' op_time, plus stack.dispatch_overhead once; the stream is busy for it
///   collective_time  from when the LAST member is ready to the end: latency and transfer, plus
///                    stack.dispatch_overhead once if the host works inline; no waiting for members
///   send_time        from when both ends are ready to the end on the receiver; same rule
///   step_overhead    once per training step and rank, outside the schedule: add it to the replayed makespan
///   software_memory  once per rank, outside the arena
///
/// Not thread-safe (it memoises): one Pricing per thread.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "clusters/cluster.h"
#include "cost/network/messages.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/stack.h"
#include "models/operators/op.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/placement.h"

namespace orrery::cost {

struct HostRates;
struct TokenChoice;

class Pricing {
 public:
  /// defaults(cluster), then the stack's own numbers, then `calibrations` in order (see merge).
  Pricing(std::shared_ptr<const clusters::Cluster> cluster, Stack stack,
          const std::vector<Calibration>& calibrations = {});
  ~Pricing();
  Pricing(const Pricing& other);  ///< with its own memo: for another thread
  Pricing& operator=(const Pricing&) = delete;
  Pricing(Pricing&&) noexcept;
  Pricing& operator=(Pricing&&) noexcept;

  [[nodiscard]] base::Seconds op_time(const models::Op& op) const;
  [[nodiscard]] base::Seconds compute_time(const plan::Step& step) const;
  [[nodiscard]] base::Seconds compute_time(std::span<const models::Op> ops) const;
  /// Host time to issue the ops (stack.host_op_time), if the host issues them before the device needs them
  /// (stack.host_runs_ahead): a pass takes the longer of host and device time. Otherwise compute_time includes it and
  /// this is 0.
  [[nodiscard]] base::Seconds host_time(std::span<const models::Op> ops) const;

  /// Host time to issue a message within a tensor group (stack.host_message_time), in a pipeline stage or in a plan of
  /// one stage. It adds to host_time.
  [[nodiscard]] base::Seconds message_host_time(int ranks, bool pipelined) const;

  /// `message` as in Step::message_bytes: the full vector of a collective, all ranks' parts together. `members`: the
  /// group's devices; other groups of the same shape are assumed to run at the same time through the same NICs. On the
  /// data stream the stack may reach a smaller share of the network (stack.data_share) and gather a layer's parameters
  /// tensor by tensor (stack.gather_messages).
  [[nodiscard]] base::Seconds collective_time(plan::CollectiveKind kind, base::Bytes message,
                                              std::span<const int> members,
                                              plan::Stream stream = plan::Stream::tensor) const;
  [[nodiscard]] base::Seconds collective_time(const plan::Step& step, const plan::Buffers& buffers,
                                              std::span<const int> members) const;
  /// The bytes that the stack sends for a `message` of 16-bit values: half if it is gathered `for_fp8` products and the
  /// stack rounds first (stack.gathers_fp8).
  [[nodiscard]] base::Bytes as_sent(base::Bytes message, bool for_fp8) const;
  /// The bytes of a sum of gradients, `kept` in this type by a plan of this precision: half of those that are kept in
  /// fp32 beside arithmetic in fewer bits, if the stack sends them in 16 (stack.reduces_half).
  [[nodiscard]] base::Bytes as_reduced(base::Bytes message, plan::Phase phase, models::DType kept,
                                       models::DType precision) const;
  /// A step's message, as both say; `precision`: the plan's.
  [[nodiscard]] base::Bytes as_sent(const plan::Step& step, const plan::Buffers& buffers,
                                    models::DType precision) const;
  /// An all-to-all of tokens' rows as the stack does it (stack.exchange_two_hop): `choice` says how many copies leave a
  /// node. Without a choice, or if the stack has no such method, this is the collective of the exchange stream.
  [[nodiscard]] base::Seconds exchange_time(base::Bytes message, std::span<const int> members,
                                            const TokenChoice& choice) const;
  [[nodiscard]] base::Seconds send_time(base::Bytes message, int from, int to) const;
  /// The devices of some of a plan's ranks: the same numbers, unless the plan is placed on a torus.
  [[nodiscard]] std::vector<int> devices_of(const plan::MeshAxes& axes, std::span<const int> ranks) const;
  [[nodiscard]] base::Seconds send_time(const plan::Step& step, const plan::Buffers& buffers, int from, int to) const;

  /// A copy between a rank's memories (cost/network/copies.h), while the other ranks of its node copy too, or with the
  /// links to itself (copy_alone). Accumulating on the way also costs time in the host's memory.
  [[nodiscard]] base::Seconds copy_time(plan::Stream stream, base::Bytes bytes, bool accumulate = false) const;
  [[nodiscard]] Alone copy_alone(plan::Stream stream, base::Bytes bytes, bool accumulate = false) const;
  /// Operators on the host's cores. On CPU ranks these are the device's cores.
  [[nodiscard]] base::Seconds on_host_time(std::span<const models::Op> ops) const;

  /// Bytes of activations that one rank sends to the next stage, and the time to make them whole again. If the stack
  /// scatters and gathers (stack.pipeline_scatter; Narayanan et al. 2021, section 4.1), tensor ranks hold the same
  /// tensor and each sends a part to the next node. `whole`: every tensor rank holds all of it, not only its own rows.
  struct Boundary {
    base::Bytes sent;
    base::Seconds gather;
  };
  [[nodiscard]] Boundary boundary(base::Bytes message, int tensor, bool whole, bool within_node) const;

  /// The same with the network to itself; see cost/network/messages.h. The latency includes the host's inline work.
  [[nodiscard]] Alone collective_alone(plan::CollectiveKind kind, base::Bytes message, const clusters::GroupSpan& span,
                                       int ranks, plan::Stream stream = plan::Stream::tensor) const;
  [[nodiscard]] Alone send_alone(base::Bytes message, const clusters::GroupSpan& span) const;
  /// Share of a collective's bytes whose transfer takes time: the others are hidden behind products of chunks
  /// (stack.tensor_hidden), or are not sent (stack.data_share above 1: fewer bits). A bandwidth counts these alone.
  [[nodiscard]] double seen_share(plan::CollectiveKind kind, plan::Stream stream) const;

  /// Ranks wait for the slowest when they meet: on a cluster of several ranks, every op takes longer by this share.
  [[nodiscard]] double jitter() const;
  /// While the other ranks compute, every op takes longer by this share (device.neighbour_slowdown; 0 with one rank).
  [[nodiscard]] double neighbour_slowdown() const;
  [[nodiscard]] base::Seconds step_overhead() const;
  [[nodiscard]] base::Bytes software_memory() const;
  [[nodiscard]] bool overlaps(plan::Stream stream) const { return stack_.overlaps(stream); }

  [[nodiscard]] const Stack& stack() const { return stack_; }
  [[nodiscard]] const Calibration& calibration() const { return calibration_; }
  [[nodiscard]] const clusters::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] const std::shared_ptr<const clusters::Cluster>& shared_cluster() const { return cluster_; }

 private:
  struct Memo;
  const HostRates& host() const;
  std::shared_ptr<const clusters::Cluster> cluster_;
  Stack stack_;
  Calibration calibration_;
  std::unique_ptr<Memo> memo_;
};

}  // namespace orrery::cost
