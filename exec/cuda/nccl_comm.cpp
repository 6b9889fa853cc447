// NCCL communicators: nonblocking initialisation, splitting, and an end that cannot hang.
#include "exec/cuda/nccl_comm.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "exec/failure.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::seconds kFarewell{5};  // for peers to flush at the end; after it, the communicator is aborted

ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

void check_nccl(ncclResult_t result, const std::string& doing) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Failure(fmt::format("NCCL: {}: {}", doing, ncclGetErrorString(result)));
}

void NcclComm::throw_aborted(const std::string& doing) {
  throw Failure(fmt::format("NCCL: {} after the communicators were aborted", doing));
}

ncclResult_t NcclComm::state() const {
  const std::lock_guard guard(*lock_);
  ncclResult_t state = ncclSuccess;
  if (!comm_) return state;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

/// The state once nothing is in progress, or ncclInProgress at the deadline.
ncclResult_t NcclComm::settled(Clock::time_point deadline) const {
  while (true) {
    const ncclResult_t now = state();
    if (now != ncclInProgress || Clock::now() >= deadline) return now;
    std::this_thread::sleep_for(kPoll);
  }
}

std::string NcclComm::last_error() const {
  const std::lock_guard guard(*lock_);
  const char* const text = comm_ ? ncclGetLastError(comm_) : nullptr;
  return text && *text ? fmt::format(" ({})", text) : std::string();
}

NcclComm::NcclComm(const ncclUniqueId& id, int size, int rank, Clock::time_point deadline) {
  ncclConfig_t config = nonblocking();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  try {
    check_nccl(result, "joining a communicator");
    settle("joining a communicator", deadline);
  } catch (...) {
    abort();
    throw;
  }
}

NcclComm::~NcclComm() {
  if (!comm_) return;
  // During an exception peers may be gone, and nobody would answer a farewell.
  const bool flushed = std::uncaught_exceptions() == 0 && flush();
  if (flushed)
    ncclCommDestroy(comm_);
  else
    abort();
}

bool NcclComm::flush() const {
  const ncclResult_t result = ncclCommFinalize(comm_);
  return (result == ncclSuccess || result == ncclInProgress) && settled(Clock::now() + kFarewell) == ncclSuccess;
}

void NcclComm::split(NcclComm& part, int colour, int key, Clock::time_point deadline) const {
  ncclConfig_t config = nonblocking();
  // The new handle is valid once the parent has settled.
  call("splitting a communicator", deadline,
       [&](ncclComm_t comm) { return ncclCommSplit(comm, colour, key, &part.comm_, &config); });
  if (part) part.settle("starting a group's communicator", deadline);
}

void NcclComm::settle(const std::string& doing, Clock::time_point deadline) const {
  const ncclResult_t now = settled(deadline);
  if (!*this) throw_aborted(doing);
  if (now == ncclInProgress) throw Failure(fmt::format("NCCL: {}: not all ranks arrived in time", doing));
  check_nccl(now, doing);
}

std::string NcclComm::illness() const {
  if (!lock_) return {};
  const ncclResult_t now = state();
  if (now == ncclSuccess || now == ncclInProgress) return {};
  return fmt::format("NCCL: a communicator has failed: {}{}", ncclGetErrorString(now), last_error());
}

ncclComm_t NcclComm::release() {
  if (!lock_) return nullptr;
  const std::lock_guard guard(*lock_);
  return std::exchange(comm_, nullptr);
}

// Without any lock: a thread that asks about a communicator meanwhile finds it gone, and ends by itself.
void NcclComm::abort_all(const std::vector<ncclComm_t>& all, const std::function<void()>& meanwhile) {
  if (std::none_of(all.begin(), all.end(), [](ncclComm_t comm) { return comm != nullptr; })) return;
  ncclGroupStart();
  for (const ncclComm_t comm : all)
    if (comm) ncclCommAbort(comm);  // sets the flag that kernels look at; the group's end does the rest
  if (meanwhile) meanwhile();
  ncclGroupEnd();
}

}  // namespace orrery::exec::cuda
