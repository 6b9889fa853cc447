// The fibers, streams and events behind tests/gpu/emulation/cuda_runtime.h. One host thread is one rank with its own
// device: all state is thread_local, and ranks meet only in emulated NCCL.
#include <cuda_runtime.h>
#include <fibers.h>
#include <graphs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {
namespace {

[[noreturn]] void bug(const char* what) {
  std::fprintf(stderr, "CUDA emulation: %s in block (%u,%u,%u), thread (%u,%u,%u)\n", what, blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  std::abort();
}

constexpr std::size_t kStack = 64 * 1024;
constexpr unsigned kWarpLanes = 32;

enum class State { ready, at_block_barrier, at_warp_barrier, finished };

struct Fiber {
  Context context{};
  char* stack = nullptr;  // from its first step until it has finished
  State state = State::finished;
  dim3 index;
  unsigned exchanges = 0;  // of this fiber: two slots alternate, so that nobody overwrites what is still read
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<unsigned> warps, lanes;  // in the order in which they run
  // Threads that never wait run one after another on the same stack, which stays in the cache.
  std::vector<std::unique_ptr<char[]>> stacks;
  std::vector<char*> free_stacks;
  std::vector<std::uint64_t> slots[2];
  Context scheduler{};
  unsigned current = 0, size = 0;
  unsigned first = 0, place = 0;  // of the warp that runs: its first thread, and the place of `current` in `lanes`
  std::vector<float> shared;
  const std::function<void()>* kernel = nullptr;
  unsigned order = 0;
};

constinit thread_local Block* block_of_thread = nullptr;

Block& make_block() {
  static thread_local Block instance;
  block_of_thread = &instance;
  return instance;
}

Block& block() {
  return block_of_thread != nullptr ? *block_of_thread : make_block();
}

char* take_stack(Block& b) {
  if (b.free_stacks.empty()) return b.stacks.emplace_back(std::make_unique<char[]>(kStack)).get();
  char* const stack = b.free_stacks.back();
  b.free_stacks.pop_back();
  return stack;
}

/// Lets a warp pass whose 32 lanes all wait. True if it did.
bool release_warp(Block& b) {
  unsigned waiting = 0;
  const unsigned last = std::min(b.first + kWarpLanes, b.size);
  for (unsigned i = b.first; i < last; ++i) waiting += b.fibers[i].state == State::at_warp_barrier ? 1 : 0;
  if (waiting == 0) return false;
  if (waiting != kWarpLanes) bug("a shuffle or vote that not all lanes of a warp reach");
  for (unsigned i = b.first; i < last; ++i) b.fibers[i].state = State::ready;
  return true;
}

/// From `place` on, in the warp's order, the next lane that may run: each as far as it gets, and again from the first
/// one when all wait for each other. Null: the warp gets no further without the others.
Fiber* next_lane(Block& b, unsigned place) {
  do {
    for (; place < kWarpLanes; ++place) {
      const unsigned i = b.first + b.lanes[place];
      if (i >= b.size || b.fibers[i].state != State::ready) continue;
      b.place = place;
      b.current = i;
      threadIdx = b.fibers[i].index;
      return &b.fibers[i];
    }
    place = 0;
  } while (release_warp(b));
  return nullptr;
}

void fiber_main();

/// Its context, on a stack of its own if it has not begun.
Context& context_of(Block& b, Fiber& fiber) {
  if (fiber.stack == nullptr) {
    fiber.stack = take_stack(b);
    start(fiber.context, fiber.stack, kStack, fiber_main);
  }
  return fiber.context;
}

/// Lanes hand over to each other: by way of the scheduler it would be twice as many switches.
void wait_as(State state) {
  Block& b = block();
  Fiber& me = b.fibers[b.current];
  me.state = state;
  Fiber* const next = next_lane(b, b.place + 1);
  if (next != &me) switch_to(me.context, next != nullptr ? context_of(b, *next) : b.scheduler);
}

void fiber_main() {
  Block& b = block();
  while (true) {
    (*b.kernel)();
    Fiber& me = b.fibers[b.current];
    me.state = State::finished;
    Fiber* const next = next_lane(b, b.place + 1);
    if (next != nullptr && next->stack == nullptr) {  // goes on here
      next->stack = std::exchange(me.stack, nullptr);
      continue;
    }
    b.free_stacks.push_back(std::exchange(me.stack, nullptr));  // nobody begins on it before the switch
    switch_to(me.context, next != nullptr ? next->context : b.scheduler);
  }
}

void release_block(Block& b) {
  for (unsigned i = 0; i < b.size; ++i)
    if (b.fibers[i].state != State::at_block_barrier) bug("a barrier that not all threads of a block reach");
  for (unsigned i = 0; i < b.size; ++i) b.fibers[i].state = State::ready;
}

/// 0 .. count - 1 in the order of the launch's variant.
std::vector<unsigned> order_of(const Block& b, unsigned count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0U);
  if (b.order == 1) std::reverse(order.begin(), order.end());
  if (b.order > 1) std::shuffle(order.begin(), order.end(), std::mt19937(b.order));
  return order;
}

/// Runs one warp as far as it gets without the others: that is where a missing block barrier shows.
void run_warp(Block& b, unsigned first) {
  b.first = first;
  if (Fiber* const lane = next_lane(b, 0)) switch_to(b.scheduler, context_of(b, *lane));
}

void run_block(Block& b, dim3 block_size) {
  for (unsigned i = 0; i < b.size; ++i) {
    Fiber& fiber = b.fibers[i];
    fiber.state = State::ready;
    fiber.exchanges = 0;
    fiber.index = dim3(i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y);
  }
  while (true) {
    for (const unsigned warp : b.warps) run_warp(b, warp * kWarpLanes);
    unsigned finished = 0;
    for (unsigned i = 0; i < b.size; ++i) finished += b.fibers[i].state == State::finished ? 1 : 0;
    if (finished == b.size) return;
    release_block(b);
  }
}

void run_grid(dim3 grid, dim3 block_size, std::size_t shared_bytes, const std::function<void()>& kernel) {
  Block& b = block();
  b.size = block_size.x * block_size.y * block_size.z;
  if (b.size == 0 || b.size > 1024) bug("a block of more than 1024 threads");
  if (b.fibers.size() < b.size) b.fibers.resize(b.size);
  for (auto& slots : b.slots) slots.assign(b.size, 0);
  b.warps = order_of(b, (b.size + kWarpLanes - 1) / kWarpLanes);
  b.lanes = order_of(b, kWarpLanes);
  b.kernel = &kernel;
  gridDim = grid;
  blockDim = block_size;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        b.shared.assign(shared_bytes / sizeof(float), nanf(""));
        run_block(b, block_size);
      }
}

unsigned linear_thread() {
  return block().current;
}

}  // namespace

void set_thread_order(unsigned order) {
  block().order = order;
}
float* dynamic_shared() {
  return block().shared.data();
}
void block_barrier() {
  wait_as(State::at_block_barrier);
}

std::uint64_t warp_exchange(std::uint64_t mine, unsigned from) {
  Block& b = block();
  const unsigned me = linear_thread();
  std::vector<std::uint64_t>& slots = b.slots[b.fibers[me].exchanges++ % 2];
  slots[me] = mine;
  wait_as(State::at_warp_barrier);
  return slots[me / kWarpLanes * kWarpLanes + from];
}

unsigned warp_vote(bool mine) {
  Block& b = block();
  const unsigned me = linear_thread();
  std::vector<std::uint64_t>& slots = b.slots[b.fibers[me].exchanges++ % 2];
  slots[me] = mine ? 1 : 0;
  wait_as(State::at_warp_barrier);
  unsigned mask = 0;
  const unsigned first = me / kWarpLanes * kWarpLanes;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) mask |= static_cast<unsigned>(slots[first + lane]) << lane;
  return mask;
}

// -- streams and events ----------------------------------------------------------------------------------------------
using Clock = std::chrono::steady_clock;

struct Stream {
  std::deque<Work> work;
  std::shared_ptr<Capture> capture;
  std::size_t lane = 0;
};

struct Event {
  std::atomic<std::uint64_t> recorded = 0, done = 0;  // a watchdog's thread asks too
  Clock::time_point at;
  double made_up_at = 0;
  Stream* stream = nullptr;
  std::weak_ptr<Capture> capture;  // where it was last recorded, if in one
  bool captured = false;
  std::size_t lane = 0, position = 0;
};

namespace {

std::vector<Stream*>& streams() {
  static thread_local std::vector<Stream*> all;
  return all;
}

/// One piece of work of a stream, if it can finish. True if it did.
bool step(Stream* stream) {
  if (stream->work.empty() || !stream->work.front()()) return false;
  stream->work.pop_front();
  return true;
}

/// One piece of any stream but `last`, which has its turn when all others are stuck. True if there was one.
bool step_of_others(const Stream* last) {
  const std::vector<Stream*>& all = streams();
  const std::size_t from = first_of(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    Stream* const one = all[(from + i) % all.size()];
    if (one != last && step(one)) return true;
  }
  return false;
}

/// Runs `stream` until `done`; the others only when it is stuck, one piece at a time, or first, or by chance.
void run_until(Stream* stream, const std::function<bool()>& done) {
  while (!done()) {
    bool any = false;
    if (stream_order() == 0) {
      if (step(stream)) continue;
      for (Stream* other : streams()) any = any || (other != stream && step(other));
    } else {
      any = step_of_others(stream_order() == 1 ? stream : nullptr) || step(stream);
    }
    if (!any) std::this_thread::yield();  // another rank must act
  }
}

/// What runs as soon as it may, where that is the order: all but the stream that is queued to, or some of all.
void advance_early(const Stream* queued) {
  const unsigned order = stream_order();
  if (order == 0) return;
  if (order == 1)
    while (step_of_others(queued)) {
    }
  else
    for (std::size_t pieces = first_of(4); pieces > 0 && step_of_others(nullptr); --pieces) {
    }
}

/// What may not be done to a stream while it is captured ends the capture, as CUDA has it.
cudaError_t breaks(Stream* stream, cudaError_t error) {
  if (stream->capture) stream->capture->broken = error;
  return error;
}

}  // namespace

cudaError_t enqueue_made(Stream* stream, std::function<Work()> make) {
  if (stream->capture) {
    if (stream->capture->broken != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
    stream->capture->graph.lanes[stream->lane].push_back({std::move(make), 0, 0});
    return cudaSuccess;
  }
  ++graph_faults().queued;
  stream->work.push_back(make());
  advance_early(stream);
  return cudaSuccess;
}

void keep_with_graph(Stream* stream, std::shared_ptr<void> user) {
  if (stream->capture) stream->capture->graph.users.push_back(std::move(user));
}

cudaError_t enqueue(Stream* stream, Work work) {
  return enqueue_made(stream, [work = std::move(work)] { return work; });
}

namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

void launch(Stream* stream, dim3 grid, dim3 block_size, std::size_t shared_bytes, std::function<void()> kernel) {
  last_error = enqueue(stream, [=, kernel = std::move(kernel)] {
    run_grid(grid, block_size, shared_bytes, kernel);
    made_up_times().clock += made_up_times().kernel_seconds;
    return true;
  });
}

}  // namespace emulation

using emulation::breaks;
using emulation::enqueue;

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "emulated error";
}
const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorStreamCaptureUnsupported) return "cudaErrorStreamCaptureUnsupported";
  if (error == cudaErrorStreamCaptureInvalidated) return "cudaErrorStreamCaptureInvalidated";
  if (error == cudaErrorStreamCaptureUnjoined) return "cudaErrorStreamCaptureUnjoined";
  if (error == cudaErrorStreamCaptureIsolation) return "cudaErrorStreamCaptureIsolation";
  return error == cudaErrorCapturedEvent ? "cudaErrorCapturedEvent" : "cudaError";
}
cudaError_t cudaGetLastError() {
  return std::exchange(emulation::last_error, cudaSuccess);
}
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = 13000, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return *version = 13000, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  return *count = 1, cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  return *device = 0, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = emulation::second_level_cache().bytes, cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = emulation::memory_of_device().total;
  properties->major = emulation::capability() / 10;
  properties->minor = emulation::capability() % 10;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = nullptr;
  if (bytes > emulation::memory_of_device().largest_piece) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*data) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  return std::free(data), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMalloc(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  return cudaFree(data);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return enqueue(stream, [=] { return std::memmove(to, from, bytes), true; });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  emulation::SecondLevelCache& cache = emulation::second_level_cache();
  if (bytes > static_cast<std::size_t>(cache.bytes)) ++cache.emptied;
  return enqueue(stream, [=] { return std::memset(to, value, bytes), true; });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new emulation::Stream;
  emulation::streams().push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  std::erase(emulation::streams(), stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture) return breaks(stream, cudaErrorStreamCaptureUnsupported);
  emulation::run_until(stream, [stream] { return stream->work.empty(); });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->captured) {
    const auto capture = event->capture.lock();
    if (!capture) return cudaErrorCapturedEvent;
    if (!stream->capture) {  // the wait takes the stream into the capture
      stream->capture = capture;
      stream->lane = capture->graph.lanes.size();
      capture->graph.lanes.emplace_back();
      capture->streams.push_back(stream);
    }
    if (stream->capture != capture) return breaks(stream, cudaErrorStreamCaptureIsolation);
    capture->graph.lanes[stream->lane].push_back({{}, event->lane, event->position});
    return cudaSuccess;
  }
  if (stream->capture && event->recorded > 0) return breaks(stream, cudaErrorStreamCaptureIsolation);
  return enqueue(stream, [event, target = event->recorded.load()] { return event->done >= target; });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new emulation::Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  // CUDA frees it once complete; here nothing may refer to it later.
  if (event->stream && !event->captured) cudaEventSynchronize(event);
  delete event;
  return cudaSuccess;
}

namespace {

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return emulation::enqueue_made(stream, [event] {
    return [event, number = ++event->recorded] {
      event->done = number;
      event->at = emulation::Clock::now();
      event->made_up_at = emulation::made_up_times().clock;
      return true;
    };
  });
}

}  // namespace

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->captured = stream->capture != nullptr;
  if (!stream->capture) return record(event, stream);
  if (stream->capture->broken != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
  event->capture = stream->capture;
  event->lane = stream->lane;
  event->position = stream->capture->graph.lanes[stream->lane].size();
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  if (!stream->capture) return cudaErrorInvalidValue;
  event->captured = false;
  return record(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) {
    if (const auto capture = event->capture.lock()) capture->broken = cudaErrorCapturedEvent;
    return cudaErrorCapturedEvent;
  }
  if (event->done < event->recorded)
    for (emulation::Stream* stream : emulation::streams()) emulation::step(stream);  // time passes
  return event->done >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return cudaErrorCapturedEvent;
  if (event->stream) emulation::run_until(event->stream, [event] { return event->done >= event->recorded; });
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = !stream->capture                         ? cudaStreamCaptureStatusNone
            : stream->capture->broken != cudaSuccess ? cudaStreamCaptureStatusInvalidated
                                                     : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture) return cudaErrorInvalidValue;
  stream->capture = std::make_shared<emulation::Capture>();
  stream->lane = 0;
  stream->capture->streams = {stream};
  stream->capture->graph.lanes.resize(1);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->capture || stream->lane != 0) return cudaErrorInvalidValue;
  const std::shared_ptr<emulation::Capture> capture = stream->capture;
  for (emulation::Stream* one : capture->streams) one->capture.reset();
  if (capture->broken != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
  if (!emulation::joined(capture->graph)) return cudaErrorStreamCaptureUnjoined;
  if (emulation::graph_faults().refuse_ends > 0)
    return --emulation::graph_faults().refuse_ends, cudaErrorStreamCaptureUnsupported;
  *graph = new emulation::Graph(std::move(capture->graph));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  if (emulation::graph_faults().refuse_instances > 0)
    return --emulation::graph_faults().refuse_instances, cudaErrorMemoryAllocation;
  *ready = new emulation::GraphExec{*graph};
  return cudaSuccess;
}

// Of one graph no two launches run at once: here every launch holds its stream, and a graph is launched on one.
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  if (stream->capture) return breaks(stream, cudaErrorStreamCaptureUnsupported);
  ++emulation::graph_faults().launches;
  stream->work.push_back(
      [running = std::make_shared<emulation::RunningGraph>(ready->graph)] { return running->step(); });
  emulation::advance_early(stream);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return delete graph, cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  return delete ready, cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = emulation::made_up_times().used ? static_cast<float>((to->made_up_at - from->made_up_at) * 1e3)
                                                  : std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
