// NCCL communicators: nonblocking initialisation, splitting, and an end that cannot hang.
#include "exec/cuda/nccl_comm.h"

#include <fmt/core.h>

#include <exception>
#include <thread>

#include "exec/failure.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::seconds kFarewell{5};  // for the peers to flush at the end; then the communicator is aborted

ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// The communicator's state once it is no longer in progress, or ncclInProgress at the deadline.
ncclResult_t settled(ncclComm_t comm, Clock::time_point deadline) {
  ncclResult_t state = ncclInProgress;
  while (true) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress || Clock::now() >= deadline) return state;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

void check_nccl(ncclResult_t result, const std::string& doing) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Failure(fmt::format("NCCL: {}: {}", doing, ncclGetErrorString(result)));
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
  // While an exception passes, peers may be gone: nobody would answer a farewell.
  const bool flushed = std::uncaught_exceptions() == 0 && flush();
  if (flushed)
    ncclCommDestroy(comm_);
  else
    abort();
}

bool NcclComm::flush() const {
  const ncclResult_t result = ncclCommFinalize(comm_);
  return (result == ncclSuccess || result == ncclInProgress) && settled(comm_, Clock::now() + kFarewell) == ncclSuccess;
}

NcclComm NcclComm::split(int colour, int key, Clock::time_point deadline) const {
  NcclComm part;
  ncclConfig_t config = nonblocking();
  check_nccl(ncclCommSplit(comm_, colour, key, &part.comm_, &config), "splitting a communicator");
  settle("splitting a communicator", deadline);  // the new handle is valid once the parent has settled
  if (part) part.settle("starting a group's communicator", deadline);
  return part;
}

void NcclComm::settle(const std::string& doing, Clock::time_point deadline) const {
  const ncclResult_t state = settled(comm_, deadline);
  if (state == ncclInProgress) throw Failure(fmt::format("NCCL: {}: not all ranks came in time", doing));
  check_nccl(state, doing);
}

void NcclComm::check_health() const {
  if (!comm_) return;
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "asking for a communicator's state");
  check_nccl(state, "a communicator has failed");
}

void NcclComm::abort() {
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace orrery::exec::cuda
