#pragma once
/// A CUDA runtime that runs on the CPU, for testing kernels, launches and stream ordering without a GPU: the same .cu
/// files are compiled as C++ against this header. Threads of a block are fibers that really stop at barriers and
/// shuffles; a barrier that not all threads reach aborts. Streams are queues that run only when somebody waits, and
/// then no further than needed, so that a missing event wait yields stale data every time instead of rarely.
#include <math.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};

extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidValue = 1,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaDeviceAttr { cudaDevAttrL2CacheSize };

namespace emulation {
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
/// Work returns false while it cannot finish yet (it waits for another stream or rank).
using Work = std::function<bool()>;
/// Queues work, or keeps it where the stream is captured: `make` is called when it is queued, and again with each
/// launch of a graph that holds it.
cudaError_t enqueue_made(Stream* stream, std::function<Work()> make);
/// The same of work without a state of its own.
cudaError_t enqueue(Stream* stream, Work work);
/// Kept as long as the graph that the stream is captured into, and those made ready of it; nothing where it is not.
void keep_with_graph(Stream* stream, std::shared_ptr<void> user);
/// What tests may do to graphs, and see of them; of this thread.
struct GraphFaults {
  int refuse_ends = 0;       ///< so many captures fail at their end
  int refuse_instances = 0;  ///< so many graphs cannot be made ready
  long launches = 0;         ///< of graphs
  long queued = 0;           ///< pieces of work queued one by one: what graphs save
};
GraphFaults& graph_faults();
void launch(Stream* stream, dim3 grid, dim3 block, std::size_t shared_bytes, std::function<void()> kernel);
float* dynamic_shared();
/// Memory of this thread's device, as it says, and the largest piece of it that is to be had.
struct MemoryOfDevice {
  std::size_t total = 0, largest_piece = ~std::size_t{0};
};
MemoryOfDevice& memory_of_device();
/// The second-level cache, of this thread's device: what kernels and libraries leave there is not modelled, only that
/// it is filled with something else.
struct SecondLevelCache {
  int bytes = 4096;
  long emptied = 0;  ///< by how many memsets of more than its size
};
SecondLevelCache& second_level_cache();
/// Times that a test makes up, of this thread: what one kernel takes, and what work of a library has added.
struct MadeUpTimes {
  bool used = false;  ///< by events, instead of the host's clock
  double kernel_seconds = 0;
  double clock = 0;  ///< seconds
};
MadeUpTimes& made_up_times();
/// 0: warps, and lanes in a warp, run in order between barriers; 1: in reverse; else shuffled by this seed. Each warp
/// runs as far as it can before the next one. Results must not change.
void set_thread_order(unsigned order);
/// How streams, and branches of a graph, share the device; of all threads, set while nothing is queued. 0: that which
/// is waited for, the others when it is stuck: what nobody ordered before it comes late. 1: the others as soon as they
/// may, the one that is queued to or waited for last: what nobody ordered behind it comes early. Else by chance, from
/// this seed. Results must not change.
std::atomic<unsigned>& stream_order();
/// Who is asked first, of so many: 0, or by chance.
std::size_t first_of(std::size_t count);

// Barriers, for the functions below.
void block_barrier();
/// Publishes 8 bytes of this lane, waits for the warp, and returns the 8 bytes of lane `from`.
std::uint64_t warp_exchange(std::uint64_t mine, unsigned from);
unsigned warp_vote(bool mine);
}  // namespace emulation

using cudaStream_t = emulation::Stream*;
using cudaEvent_t = emulation::Event*;
using cudaGraph_t = emulation::Graph*;
using cudaGraphExec_t = emulation::GraphExec*;

inline void __syncthreads() {
  emulation::block_barrier();
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const unsigned lane = (threadIdx.x + blockDim.x * threadIdx.y) % 32;
  bits = emulation::warp_exchange(bits, lane ^ static_cast<unsigned>(mask));
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
T __shfl_up_sync(unsigned, T value, unsigned lanes) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const unsigned lane = (threadIdx.x + blockDim.x * threadIdx.y) % 32;
  bits = emulation::warp_exchange(bits, lane >= lanes ? lane - lanes : lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}

/// 16 bytes that one instruction loads or stores; may stand for any type's memory.
struct __attribute__((may_alias, aligned(16))) uint4 {
  unsigned x, y, z, w;
};
struct __attribute__((may_alias, aligned(8))) uint2 {
  unsigned x, y;
};

inline float __expf(float x) {
  return expf(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline unsigned __float_as_uint(float value) {
  return __builtin_bit_cast(unsigned, value);
}
inline float __uint_as_float(unsigned bits) {
  return __builtin_bit_cast(float, bits);
}
template <class T>
T atomicAdd(T* at, T value) {  // fibers of one thread: nobody else is at it
  const T old = *at;
  *at = old + value;
  return old;
}

template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = old > value ? old : value;
  return old;
}

inline unsigned __ballot_sync(unsigned, bool mine) {
  return emulation::warp_vote(mine);
}
inline void __syncwarp() {
  emulation::warp_vote(true);
}
inline void __threadfence() {}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}

#define ORRERY_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  emulation::launch(stream, grid, block, shared_bytes, [=] { kernel(__VA_ARGS__); })
#define ORRERY_DYNAMIC_SHARED(name) float* name = emulation::dynamic_shared()

// -- the host side, as far as exec/cuda uses it -----------------------------------------------------------------------
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, pciBusID, pciDeviceID, pciDomainID;
};

inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0;
inline constexpr unsigned cudaEventRecordExternal = 1;
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
namespace emulation {
/// Compute capability of the device, of this thread: 90 as long as nobody says otherwise.
int& capability();
}  // namespace emulation
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaMalloc(void** data, std::size_t bytes);  ///< filled with NaN patterns, so that what is unset shows
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready);
inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int bytes) {
  return bytes <= 163 * 1024 ? cudaSuccess : cudaErrorMemoryAllocation;  // the limit of sm_80
}
