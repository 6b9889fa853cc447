#pragma once
/// The part of NCCL that exec/cuda uses, between threads of one process, on emulated streams. Communicators are
/// nonblocking as NCCL's are: a call reports ncclInProgress until all ranks have come, sends wait for their receive,
/// and a failed rank shows only through ncclCommGetAsyncError. Sends and receives within a group are those of an
/// all-to-all: every rank of the communicator takes part. As with NCCL 2.28, an abort ends this rank's operations
/// alone, at once, and then waits: until no other communicator of the rank has operations under way (the device is
/// synchronised), and until no graph holds an operation of its own. Within a group the waits come at its end.
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclUint8 = 1, ncclInt32 = 2, ncclInt64 = 4, ncclFloat16 = 6, ncclFloat32 = 7, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }
#define NCCL_SPLIT_NOCOLOR (-1)

namespace emulation {
struct Comm;
/// What tests may do and see.
struct NcclFaults {
  bool no_ids = false;               ///< ncclGetUniqueId fails
  int refuse_rank = -1;              ///< this rank never joins a communicator: its initialisation fails at once
  ncclResult_t async = ncclSuccess;  ///< what every communicator reports once it is in use
  int aborts = 0;                    ///< ncclCommAbort calls
  int patience_ms = 3000;            ///< what an abort waits for at most: then it is counted as stuck, and goes on
  int stuck = 0;                     ///< aborts that NCCL would not have come back from
  int inits = 0;                     ///< ncclCommInitRankConfig calls: the others are splits
};
NcclFaults& nccl_faults();
void reset_nccl_faults();
}  // namespace emulation
using ncclComm_t = emulation::Comm*;

const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* comm, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
