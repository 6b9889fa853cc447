// Groups, directions and operations on NCCL communicators.
#include "exec/cuda/nccl_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "base/ensure.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::chrono::milliseconds kWatch{50};  // between two looks of the watchdog

std::optional<ncclDataType_t> known_type(models::DType dtype) {
  switch (dtype) {
    case models::DType::fp32: return ncclFloat32;
    case models::DType::bf16: return ncclBfloat16;
    case models::DType::fp16: return ncclFloat16;
    case models::DType::int32: return ncclInt32;
    case models::DType::int64: return ncclInt64;
    case models::DType::uint8: return ncclUint8;
    case models::DType::tf32:
    case models::DType::fp4:
    case models::DType::fp8: break;
  }
  return std::nullopt;
}

ncclDataType_t nccl_type(models::DType dtype) {
  if (const auto known = known_type(dtype)) return *known;
  throw Failure(fmt::format("NCCL: {} cannot be communicated", models::name_of(dtype)));
}

ncclRedOp_t nccl_op(plan::Reduce reduce) {
  return reduce == plan::Reduce::maximum ? ncclMax : ncclSum;
}

/// An operation in flight: done when its point has passed. The watchdog watches it.
class NcclRequest final : public Request {
 public:
  NcclRequest(NcclTransport& transport, std::shared_ptr<const Point> end, std::optional<std::pair<Mark, Mark>> marks)
      : transport_(transport), end_(std::move(end)), marks_(marks) {}

  bool test() override {
    const bool done = end_->passed();
    transport_.check_health();
    return done;
  }
  Points ends() const override { return {end_}; }
  std::optional<std::pair<Mark, Mark>> marks() const override { return marks_; }

 private:
  NcclTransport& transport_;
  std::shared_ptr<const Point> end_;
  std::optional<std::pair<Mark, Mark>> marks_;
};

}  // namespace

NcclTransport::NcclTransport(CudaBackend& backend, Transport& host, NcclComm world, const CudaTransportOptions& options)
    : backend_(backend),
      host_(host),
      options_(options),
      staged_(backend, host, "ranks are not connected"),
      world_(std::move(world)),
      watchdog_({[this] {
                   std::string why;
                   each_communicator([&](NcclComm& comm) {
                     if (why.empty()) why = comm.illness();
                   });
                   return why;
                 },
                 options.on_failure, [this] { abort_all(); }},
                options.deadline_s, kWatch) {
  backend_.while_waiting([this] { check_health(); });
}

bool NcclTransport::communicates(models::DType dtype) {
  return known_type(dtype).has_value();
}

// During an exception peers may be gone, and nobody would answer each communicator's farewell.
NcclTransport::~NcclTransport() {
  backend_.while_waiting({});
  if (std::uncaught_exceptions() > 0) abort_all();
}

// The order matters. First operations are told to quit, which ends a launch that waits for room in the device's queue
// and so holds the graphs. Then graphs are dropped. Only then may anything wait for the communicators to end, because
// they wait for graphs.
void NcclTransport::abort_all() {
  std::vector<ncclComm_t> all;
  each_communicator([&](NcclComm& comm) { all.push_back(comm.release()); });
  NcclComm::abort_all(all, [this] { backend_.drop_graphs(); });
}

Clock::time_point NcclTransport::start_deadline() const {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.start_timeout_s));
}

template <class Body>
void NcclTransport::each_communicator(const Body& body) {
  const std::lock_guard guard(channels_lock_);
  body(world_);
  for (const auto& channel : groups_) body(channel->comm);
  for (const auto& [direction, channel] : directions_) body(channel->comm);
}

std::unique_ptr<NcclTransport::Channel> NcclTransport::split_off(int size, int colour, int key) {
  auto channel = std::make_unique<Channel>();
  channel->size = size;
  try {
    world_.split(channel->comm, colour, key, start_deadline());
  } catch (const Failure& failure) {
    {
      const std::lock_guard guard(channels_lock_);
      groups_.push_back(std::move(channel));  // it ends with the others
    }
    watchdog_.give_up(failure.what());
  }
  return channel;
}

GroupId NcclTransport::make_group(const plan::Group& group) {
  const std::vector<int> members = group.members(rank());
  ENSURE(!members.empty(), "group {} of rank {} is empty", group.name, rank());
  // The groups of one plan::Group divide all ranks, so each is named by its lowest member.
  const int colour = members.size() == 1 ? NCCL_SPLIT_NOCOLOR : members.front();
  auto channel = split_off(static_cast<int>(members.size()), colour, rank());
  const std::lock_guard guard(channels_lock_);
  groups_.push_back(std::move(channel));
  return static_cast<GroupId>(groups_.size()) - 1;
}

// All ranks split together, as often as needed for every direction to have its turn: in one split, a rank can be an end
// of only one direction.
void NcclTransport::connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) {
  static_cast<void>(receive_from);  // the senders name every direction
  std::vector<std::int32_t> mine;
  for (const int to : send_to)
    if (directions_.count({rank(), to}) == 0) mine.push_back(to);
  const auto most = static_cast<std::size_t>(host_.maximum(static_cast<double>(mine.size())));
  if (most == 0) return;
  mine.resize(most, -1);
  const GroupId all = host_.make_group({"world", {{1, host_.size()}}});
  const std::vector<std::byte> bytes = exchange(host_, all, std::as_bytes(std::span(mine)), options_.start_timeout_s);
  std::vector<std::int32_t> targets(bytes.size() / sizeof(std::int32_t));
  std::memcpy(targets.data(), bytes.data(), bytes.size());
  std::vector<Direction> wanted;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (targets[i] >= 0) wanted.push_back({static_cast<int>(i / most), targets[i]});
  for (const std::vector<Direction>& round : rounds_of(wanted)) {
    const auto own = std::find_if(round.begin(), round.end(),
                                  [&](const Direction& d) { return d.from == rank() || d.to == rank(); });
    const bool taking_part = own != round.end();
    auto channel = split_off(2, taking_part ? own->from : NCCL_SPLIT_NOCOLOR, taking_part && own->to == rank() ? 1 : 0);
    if (!taking_part) continue;
    const std::lock_guard guard(channels_lock_);
    directions_[*own] = std::move(channel);
  }
}

std::string NcclTransport::begin(Channel& channel, const char* doing) {
  Preparation next = std::exchange(next_, {});
  if (next.behind.empty()) next.behind.push_back(backend_.point());
  for (const auto& point : next.behind) wait_on(channel.stream.get(), *point);
  return next.what.empty() ? std::string(doing) : std::move(next.what);
}

template <class Operation>
std::unique_ptr<Request> NcclTransport::start(Channel& channel, const char* doing, const Operation& operation) {
  watchdog_.check();
  const std::string what = begin(channel, doing);
  const auto begun = backend_.point_on(channel.stream.get());
  const Mark from = marks_ ? backend_.mark_on(channel.stream.get()) : Mark{};
  try {
    // Only once NCCL has accepted the call is the operation on the stream, and an event after it meaningful.
    channel.comm.call(what, start_deadline(), [&](ncclComm_t comm) { return operation(comm, channel.stream.get()); });
  } catch (const Failure& failure) {
    if (backend_.capturing()) throw;  // the run continues without that graph
    watchdog_.give_up(failure.what());
  }
  std::optional<std::pair<Mark, Mark>> marks;
  if (marks_) marks = {from, backend_.mark_on(channel.stream.get())};
  auto end = backend_.point_on(channel.stream.get());
  if (!backend_.capturing()) watchdog_.add(what, begun, end);  // in a graph: whenever it runs
  return std::make_unique<NcclRequest>(*this, std::move(end), marks);
}

std::unique_ptr<Request> NcclTransport::copy_alone(Channel& channel, const std::byte* source, std::byte* target,
                                                   std::size_t bytes) {
  static_cast<void>(begin(channel, "a group of one"));
  const Mark from = marks_ ? backend_.mark_on(channel.stream.get()) : Mark{};
  if (bytes > 0 && source != target)
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, channel.stream.get()), "a group of one");
  std::optional<std::pair<Mark, Mark>> marks;
  if (marks_) marks = {from, backend_.mark_on(channel.stream.get())};
  return std::make_unique<NcclRequest>(*this, backend_.point_on(channel.stream.get()), marks);
}

std::unique_ptr<Request> NcclTransport::all_reduce(GroupId id, plan::Reduce reduce, models::DType dtype,
                                                   std::byte* data, std::int64_t elements) {
  Channel& channel = group(id);
  if (channel.size == 1) return copy_alone(channel, data, data, 0);
  const auto count = static_cast<std::size_t>(elements);
  return start(channel, "all-reduce", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(data, data, count, nccl_type(dtype), nccl_op(reduce), comm, stream);
  });
}

std::unique_ptr<Request> NcclTransport::all_gather(GroupId id, models::DType dtype, const std::byte* source,
                                                   std::byte* target, std::int64_t elements_per_rank) {
  Channel& channel = group(id);
  const auto count = static_cast<std::size_t>(elements_per_rank);
  if (channel.size == 1)
    return copy_alone(channel, source, target, count * static_cast<std::size_t>(models::size_of(dtype)));
  return start(channel, "all-gather", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(source, target, count, nccl_type(dtype), comm, stream);
  });
}

std::unique_ptr<Request> NcclTransport::reduce_scatter(GroupId id, models::DType dtype, const std::byte* source,
                                                       std::byte* target, std::int64_t elements_per_rank) {
  Channel& channel = group(id);
  const auto count = static_cast<std::size_t>(elements_per_rank);
  if (channel.size == 1)
    return copy_alone(channel, source, target, count * static_cast<std::size_t>(models::size_of(dtype)));
  return start(channel, "reduce-scatter", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(source, target, count, nccl_type(dtype), ncclSum, comm, stream);
  });
}

// Pieces to and from every member at once.
std::unique_ptr<Request> NcclTransport::exchange_slots(Channel& channel, const Slots& slots) {
  return start(channel, "all-to-all", [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclDataType_t type = nccl_type(slots.dtype);
    ncclResult_t result = ncclGroupStart();
    for (int member = 0; member < channel.size; ++member) {
      const std::size_t at = static_cast<std::size_t>(member) * slots.bytes;
      for (const bool sends : {true, false}) {
        const auto count = static_cast<std::size_t>((sends ? slots.sent : slots.received)(member));
        const ncclResult_t queued = sends ? ncclSend(slots.source + at, count, type, member, comm, stream)
                                          : ncclRecv(slots.target + at, count, type, member, comm, stream);
        if (result == ncclSuccess && queued != ncclInProgress) result = queued;
      }
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  });
}

std::unique_ptr<Request> NcclTransport::all_to_all(GroupId id, models::DType dtype, const std::byte* source,
                                                   std::byte* target, std::int64_t elements_per_rank) {
  Channel& channel = group(id);
  const auto bytes = static_cast<std::size_t>(elements_per_rank * models::size_of(dtype));
  if (channel.size == 1) return copy_alone(channel, source, target, bytes);
  const auto all = [elements_per_rank](int) { return elements_per_rank; };
  return exchange_slots(channel, {dtype, source, target, bytes, all, all});
}

std::unique_ptr<Request> NcclTransport::all_to_all_counted(GroupId id, models::DType dtype, const std::byte* source,
                                                           std::byte* target, std::int64_t slot,
                                                           const std::vector<std::int64_t>& sent,
                                                           const std::vector<std::int64_t>& received) {
  Channel& channel = group(id);
  const auto members = static_cast<std::size_t>(channel.size);
  ENSURE(sent.size() == members && received.size() == members, "counts of {} and {} members among {}", sent.size(),
         received.size(), members);
  const std::int64_t size = models::size_of(dtype);
  if (channel.size == 1) return copy_alone(channel, source, target, static_cast<std::size_t>(sent.front() * size));
  const auto of = [](const std::vector<std::int64_t>& counts) {
    return [&counts](int member) { return counts[static_cast<std::size_t>(member)]; };
  };
  return exchange_slots(channel,
                        {dtype, source, target, static_cast<std::size_t>(slot * size), of(sent), of(received)});
}

std::unique_ptr<Request> NcclTransport::send(int to, int tag, models::DType dtype, const std::byte* data,
                                             std::int64_t elements) {
  const auto found = directions_.find({rank(), to});
  if (found == directions_.end()) {
    staged_.prepare(std::exchange(next_, {}));
    return staged_.send(to, tag, dtype, data, elements);
  }
  return start(*found->second, "send", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclSend(data, static_cast<std::size_t>(elements), nccl_type(dtype), 1, comm, stream);
  });
}

std::unique_ptr<Request> NcclTransport::receive(int from, int tag, models::DType dtype, std::byte* data,
                                                std::int64_t elements) {
  const auto found = directions_.find({from, rank()});
  if (found == directions_.end()) {
    staged_.prepare(std::exchange(next_, {}));
    return staged_.receive(from, tag, dtype, data, elements);
  }
  return start(*found->second, "receive", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclRecv(data, static_cast<std::size_t>(elements), nccl_type(dtype), 0, comm, stream);
  });
}

}  // namespace orrery::exec::cuda
