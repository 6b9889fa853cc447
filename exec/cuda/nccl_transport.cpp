// Groups, directions and operations on NCCL communicators.
#include "exec/cuda/nccl_transport.h"

#include <fmt/core.h>

#include <cstring>

#include "base/ensure.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kIdTag = 20306;  // of the messages that carry communicator ids; sent before any scheduled message

ncclDataType_t nccl_type(models::DType dtype) {
  switch (dtype) {
    case models::DType::fp32: return ncclFloat32;
    case models::DType::bf16: return ncclBfloat16;
    case models::DType::fp16: return ncclFloat16;
    case models::DType::int32: return ncclInt32;
    case models::DType::int64: return ncclInt64;
    case models::DType::tf32:
    case models::DType::uint8:
    case models::DType::fp8: break;
  }
  throw Failure(fmt::format("NCCL: {} cannot be communicated", models::name_of(dtype)));
}

ncclRedOp_t nccl_op(plan::Reduce reduce) {
  return reduce == plan::Reduce::maximum ? ncclMax : ncclSum;
}

/// An operation in flight: done when its event is. Testing also looks after the communicators and the deadline.
class NcclRequest final : public Request {
 public:
  NcclRequest(NcclTransport& transport, Event done, const char* doing)
      : transport_(transport), done_(std::move(done)), doing_(doing), begun_(Clock::now()) {}

  bool test() override {
    if (done_.done()) return true;
    transport_.check_health();
    const double deadline = transport_.options().deadline_s;
    if (deadline > 0 && Clock::now() - begun_ > std::chrono::duration<double>(deadline))
      transport_.give_up(fmt::format("NCCL: {}: not done within {} s", doing_, deadline));
    return false;
  }
  bool order_compute() override {
    wait_on(transport_.backend().stream(), done_);
    return true;
  }

 private:
  NcclTransport& transport_;
  Event done_;
  const char* doing_;
  Clock::time_point begun_;
};

}  // namespace

NcclTransport::NcclTransport(CudaBackend& backend, Transport& host, NcclComm world, const CudaTransportOptions& options)
    : backend_(backend),
      host_(host),
      options_(options),
      staged_(backend, host, "ranks are not connected"),
      world_(std::move(world)) {
  backend_.while_waiting([this] { check_health(); });
}

NcclTransport::~NcclTransport() {
  backend_.while_waiting({});
}

Clock::time_point NcclTransport::start_deadline() const {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.start_timeout_s));
}

std::vector<NcclComm*> NcclTransport::communicators() {
  std::vector<NcclComm*> all{&world_};
  for (const auto& channel : groups_) all.push_back(&channel->comm);
  for (const auto& [direction, channel] : directions_) all.push_back(&channel->comm);
  return all;
}

void NcclTransport::check_health() {
  try {
    for (const NcclComm* comm : communicators()) comm->check_health();
  } catch (const Failure& failure) {
    give_up(failure.what());
  }
}

void NcclTransport::give_up(const std::string& why) {
  for (NcclComm* comm : communicators()) comm->abort();
  throw Failure(why);
}

GroupId NcclTransport::make_group(const plan::Group& group) {
  const std::vector<int> members = group.members(rank());
  ENSURE(!members.empty(), "group {} of rank {} is empty", group.name, rank());
  auto channel = std::make_unique<Channel>();
  channel->size = static_cast<int>(members.size());
  // The groups of one plan::Group divide all ranks, so the lowest member names each.
  const int colour = members.size() == 1 ? NCCL_SPLIT_NOCOLOR : members.front();
  channel->comm = world_.split(colour, rank(), start_deadline());
  groups_.push_back(std::move(channel));
  return static_cast<GroupId>(groups_.size()) - 1;
}

void NcclTransport::connect(const std::vector<int>& send_to, const std::vector<int>& receive_from) {
  for (const Direction& direction : directions(rank(), send_to, receive_from)) {
    ncclUniqueId id{};
    static_assert(sizeof(id) % 4 == 0);
    constexpr std::int64_t words = sizeof(id) / 4;
    auto* bytes = reinterpret_cast<std::byte*>(&id);
    const bool sender = direction.from == rank();
    if (sender) check_nccl(ncclGetUniqueId(&id), "making an id");
    const auto request = sender ? host_.send(direction.to, kIdTag, models::DType::int32, bytes, words)
                                : host_.receive(direction.from, kIdTag, models::DType::int32, bytes, words);
    finish(*request, "exchanging an id", options_.start_timeout_s);
    auto channel = std::make_unique<Channel>();
    channel->size = 2;
    channel->comm = NcclComm(id, 2, sender ? 0 : 1, start_deadline());
    directions_[direction] = std::move(channel);
  }
}

template <class Operation>
std::unique_ptr<Request> NcclTransport::start(Channel& channel, const char* doing, const Operation& operation) {
  if (!channel.comm) throw Failure(fmt::format("NCCL: {} after the communicators were aborted", doing));
  computed_.record(backend_.stream());
  wait_on(channel.stream.get(), computed_);
  check_nccl(operation(channel.comm.get(), channel.stream.get()), doing);
  // The operation is on the stream, and an event after it means something, only once the call has been taken in.
  channel.comm.settle(doing, start_deadline());
  Event done;
  done.record(channel.stream.get());
  return std::make_unique<NcclRequest>(*this, std::move(done), doing);
}

std::unique_ptr<Request> NcclTransport::copy_alone(Channel& channel, const std::byte* source, std::byte* target,
                                                   std::size_t bytes) {
  computed_.record(backend_.stream());
  wait_on(channel.stream.get(), computed_);
  if (bytes > 0 && source != target)
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, channel.stream.get()), "a group of one");
  Event done;
  done.record(channel.stream.get());
  return std::make_unique<NcclRequest>(*this, std::move(done), "a group of one");
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

std::unique_ptr<Request> NcclTransport::send(int to, int tag, models::DType dtype, const std::byte* data,
                                             std::int64_t elements) {
  const auto found = directions_.find({rank(), to});
  if (found == directions_.end()) return staged_.send(to, tag, dtype, data, elements);
  return start(*found->second, "send", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclSend(data, static_cast<std::size_t>(elements), nccl_type(dtype), 1, comm, stream);
  });
}

std::unique_ptr<Request> NcclTransport::receive(int from, int tag, models::DType dtype, std::byte* data,
                                                std::int64_t elements) {
  const auto found = directions_.find({from, rank()});
  if (found == directions_.end()) return staged_.receive(from, tag, dtype, data, elements);
  return start(*found->second, "receive", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclRecv(data, static_cast<std::size_t>(elements), nccl_type(dtype), 0, comm, stream);
  });
}

}  // namespace orrery::exec::cuda
