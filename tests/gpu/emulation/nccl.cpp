// NCCL between threads: a World per communicator, where ranks leave what they bring and take what they came for.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace emulation {
namespace {

/// One collective, or one message: what each rank brought, and how many have taken their result.
struct Meeting {
  std::map<int, std::vector<char>> brought;
  int taken = 0;
};

struct World {
  std::mutex mutex;
  int size = 0;
  std::map<int, bool> joined;
  std::map<long, Meeting> collectives;                        // by number on the communicator
  std::map<long, std::map<int, std::pair<int, int>>> splits;  // number -> rank -> (colour, key)
  std::map<std::string, std::shared_ptr<World>> parts;
};

std::mutex& registry_mutex() {
  static std::mutex instance;
  return instance;
}

std::shared_ptr<World> world_of(const std::string& id) {
  static std::map<std::string, std::shared_ptr<World>> all;
  const std::lock_guard lock(registry_mutex());
  auto& world = all[id];
  if (!world) world = std::make_shared<World>();
  return world;
}

std::size_t size_of(ncclDataType_t type) {
  if (type == ncclInt64) return 8;
  if (type == ncclUint8) return 1;
  return type == ncclFloat16 || type == ncclBfloat16 ? 2 : 4;
}

}  // namespace

/// What outlives a communicator: queued work, and other communicators of its rank, look at it.
struct Life {
  std::atomic<bool> aborted{false};
  std::atomic<int> under_way{0};  // operations queued or launched, and not done
};

/// A rank's GPU, as far as communicators wait for each other.
struct Device {
  std::mutex mutex;
  std::vector<std::shared_ptr<Life>> all;
  bool busy() {
    const std::lock_guard lock(mutex);
    return std::any_of(all.begin(), all.end(), [](const auto& one) { return !one->aborted && one->under_way > 0; });
  }
};

std::shared_ptr<Device>& device_of_thread() {
  static thread_local auto instance = std::make_shared<Device>();
  return instance;
}

struct Comm {
  explicit Comm(std::shared_ptr<Device> of) : device(std::move(of)) {
    const std::lock_guard lock(device->mutex);
    device->all.push_back(life);
  }
  std::shared_ptr<Device> device;
  std::shared_ptr<Life> life = std::make_shared<Life>();
  std::shared_ptr<int> in_graphs = std::make_shared<int>();  // one owner more for each graph
  bool finalised = false;
  std::shared_ptr<World> world;
  int rank = 0;
  long next = 0;  // collectives
  long next_split = 0;
  // of a split in progress on this communicator, and of a part that is not there yet
  long pending_split = -1;
  Comm** part = nullptr;
};

NcclFaults& nccl_faults() {
  static NcclFaults instance;
  return instance;
}

void reset_nccl_faults() {
  NcclFaults& faults = nccl_faults();
  faults.no_ids = false;
  faults.refuse_rank = -1;
  faults.async = ncclSuccess;
  faults.aborts = 0;
  faults.patience_ms = 3000;
  faults.stuck = 0;
  faults.inits = 0;
}

namespace {

bool all_joined(World& world) {
  const std::lock_guard lock(world.mutex);
  return static_cast<int>(world.joined.size()) == world.size;
}

/// Completes a split once all ranks have asked for it.
bool finish_split(Comm& parent) {
  if (parent.pending_split < 0) return true;
  World& world = *parent.world;
  const std::lock_guard lock(world.mutex);
  const auto& asked = world.splits[parent.pending_split];
  if (static_cast<int>(asked.size()) < world.size) return false;
  const int colour = asked.at(parent.rank).first;
  if (colour != NCCL_SPLIT_NOCOLOR) {
    std::vector<std::pair<int, int>> members;  // (key, rank)
    for (const auto& [rank, wish] : asked)
      if (wish.first == colour) members.emplace_back(wish.second, rank);
    std::sort(members.begin(), members.end());
    auto& part = world.parts[std::to_string(parent.pending_split) + "/" + std::to_string(colour)];
    if (!part) {
      part = std::make_shared<World>();
      part->size = static_cast<int>(members.size());
    }
    auto* comm = new Comm(parent.device);
    comm->world = part;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].second == parent.rank) comm->rank = static_cast<int>(i);
    {
      const std::lock_guard part_lock(part->mutex);
      part->joined[comm->rank] = true;
    }
    *parent.part = comm;
  }
  parent.pending_split = -1;
  return true;
}

/// Queues a collective: `take(meeting)` runs once all ranks have brought their bytes. Its number is that of its run: a
/// graph's operation has a new one with each launch.
void meet(Comm* comm, const void* source, std::size_t bytes, cudaStream_t stream,
          const std::function<void(const Meeting&)>& take, const std::function<std::vector<char>()>& bring = {}) {
  keep_with_graph(stream, comm->in_graphs);
  enqueue_made(stream, [=]() -> Work {
    const long number = comm->next++;
    ++comm->life->under_way;
    return [=, brought = std::make_shared<bool>(false), world = comm->world, rank = comm->rank, life = comm->life] {
      if (life->aborted) return true;
      const std::lock_guard lock(world->mutex);
      Meeting& meeting = world->collectives[number];
      if (!*brought) {
        const char* from = static_cast<const char*>(source);
        meeting.brought[rank] = bring ? bring() : std::vector<char>(from, from + bytes);
        *brought = true;
      }
      if (static_cast<int>(meeting.brought.size()) < world->size) return false;
      take(meeting);
      --life->under_way;
      if (++meeting.taken == world->size) world->collectives.erase(number);
      return true;
    };
  });
}

/// A send or receive within a group, on this thread.
struct Piece {
  bool sends = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  Comm* comm = nullptr;
  cudaStream_t stream = nullptr;
};
struct Grouped {
  int depth = 0;
  std::vector<Piece> pieces;
  std::vector<Comm*> aborts;
};
Grouped& grouped() {
  static thread_local Grouped instance;
  return instance;
}

/// The second half of an abort.
void wait_for_end_of(const Comm& comm) {
  const auto waits = [&] { return comm.device->busy() || comm.in_graphs.use_count() > 1; };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(nccl_faults().patience_ms);
  while (waits()) {
    if (std::chrono::steady_clock::now() > deadline) {
      const std::lock_guard lock(registry_mutex());
      ++nccl_faults().stuck;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// What one rank sends in a group: for each piece the peer, the size, the bytes.
std::vector<char> packed(const std::vector<Piece>& pieces) {
  std::vector<char> out;
  for (const Piece& piece : pieces) {
    if (!piece.sends) continue;
    const std::uint64_t head[2] = {static_cast<std::uint64_t>(piece.peer), piece.bytes};
    const char* const of_head = reinterpret_cast<const char*>(head);
    out.insert(out.end(), of_head, of_head + sizeof(head));
    out.insert(out.end(), piece.data, piece.data + piece.bytes);
  }
  return out;
}

void unpack(const Meeting& meeting, const Piece& piece, int rank) {
  const std::vector<char>& from = meeting.brought.at(piece.peer);
  for (std::size_t at = 0; at < from.size();) {
    std::uint64_t head[2];
    std::memcpy(head, from.data() + at, sizeof(head));
    at += sizeof(head);
    if (head[0] == static_cast<std::uint64_t>(rank) && head[1] == piece.bytes)
      std::memcpy(piece.data, from.data() + at, piece.bytes);
    at += head[1];
  }
}

int plain(int value) {
  return value;
}
float plain(float value) {
  return value;
}
float plain(__half value) {
  return __half2float(value);
}
float plain(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
void put(int value, int& to) {
  to = value;
}
void put(float value, float& to) {
  to = value;
}
void put(float value, __half& to) {
  to = __float2half_rn(value);
}
void put(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}

/// 16-bit values are summed in fp32 and rounded once.
template <class T>
void reduce(const Meeting& meeting, std::size_t first, std::size_t count, ncclRedOp_t op, void* target) {
  T* out = static_cast<T*>(target);
  for (std::size_t i = 0; i < count; ++i) {
    decltype(plain(T{})) value{};
    for (const auto& [rank, bytes] : meeting.brought) {
      T stored;
      std::memcpy(&stored, bytes.data() + (first + i) * sizeof(T), sizeof(T));
      const auto v = plain(stored);
      value = rank == 0 ? v : op == ncclMax ? std::max(value, v) : value + v;
    }
    put(value, out[i]);
  }
}

void reduce(ncclDataType_t type, const Meeting& meeting, std::size_t first, std::size_t count, ncclRedOp_t op,
            void* target) {
  switch (type) {
    case ncclFloat32: return reduce<float>(meeting, first, count, op, target);
    case ncclFloat16: return reduce<__half>(meeting, first, count, op, target);
    case ncclBfloat16: return reduce<__nv_bfloat16>(meeting, first, count, op, target);
    case ncclInt32: return reduce<int>(meeting, first, count, op, target);
    case ncclInt64:
    case ncclUint8: break;
  }
  std::fprintf(stderr, "NCCL emulation: no sums of this type\n");
  std::abort();
}

}  // namespace
}  // namespace emulation

using emulation::Comm;
using emulation::Meeting;

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "emulated NCCL error";
}
const char* ncclGetLastError(ncclComm_t) {
  return "emulated";
}
ncclResult_t ncclGetVersion(int* version) {
  return *version = 22809, ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{1};
  if (emulation::nccl_faults().no_ids) return ncclSystemError;
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "world-%d", next++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || emulation::nccl_faults().refuse_rank == rank) return ncclInvalidUsage;
  auto world = emulation::world_of(id.internal);
  const std::lock_guard lock(world->mutex);
  ++emulation::nccl_faults().inits;
  world->size = size;
  world->joined[rank] = true;
  *comm = new Comm(emulation::device_of_thread());
  (*comm)->world = world;
  (*comm)->rank = rank;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* comm, ncclConfig_t*) {
  *comm = nullptr;
  parent->part = comm;
  parent->pending_split = parent->next_split++;
  const std::lock_guard lock(parent->world->mutex);
  parent->world->splits[parent->pending_split][parent->rank] = {colour, key};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const bool ends = comm->finalised && comm->in_graphs.use_count() > 1;
  const bool ready = !ends && emulation::all_joined(*comm->world) && emulation::finish_split(*comm);
  *state = ready ? emulation::nccl_faults().async : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalised = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(emulation::registry_mutex());
    ++emulation::nccl_faults().aborts;
    static std::vector<std::unique_ptr<Comm>> graves;  // a graph may still hold it
    graves.emplace_back(comm);
  }
  comm->life->aborted = true;
  if (emulation::grouped().depth > 0)
    emulation::grouped().aborts.push_back(comm);
  else
    emulation::wait_for_end_of(*comm);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  emulation::meet(comm, source, count * emulation::size_of(type), stream,
                  [=](const Meeting& meeting) { emulation::reduce(type, meeting, 0, count, op, target); });
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * emulation::size_of(type);
  emulation::meet(comm, source, bytes, stream, [=](const Meeting& meeting) {
    for (const auto& [rank, brought] : meeting.brought)
      std::memcpy(static_cast<char*>(target) + static_cast<std::size_t>(rank) * bytes, brought.data(), bytes);
  });
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* source, void* target, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<std::size_t>(comm->world->size);
  const std::size_t first = count * static_cast<std::size_t>(comm->rank);
  emulation::meet(comm, source, ranks * count * emulation::size_of(type), stream,
                  [=](const Meeting& meeting) { emulation::reduce(type, meeting, first, count, op, target); });
  return ncclSuccess;
}

// A message is a collective of two to which one side brings nothing: the sender waits for the receiver, as with large
// messages in NCCL.
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (emulation::grouped().depth > 0) {
    emulation::grouped().pieces.push_back({true, const_cast<char*>(static_cast<const char*>(data)),
                                           count * emulation::size_of(type), peer, comm, stream});
    return ncclSuccess;
  }
  if (peer == comm->rank || comm->world->size != 2) return ncclInvalidArgument;
  emulation::meet(comm, data, count * emulation::size_of(type), stream, [](const Meeting&) {});
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (emulation::grouped().depth > 0) {
    emulation::grouped().pieces.push_back(
        {false, static_cast<char*>(data), count * emulation::size_of(type), peer, comm, stream});
    return ncclSuccess;
  }
  if (peer == comm->rank || comm->world->size != 2) return ncclInvalidArgument;
  const std::size_t bytes = count * emulation::size_of(type);
  emulation::meet(comm, data, 0, stream,
                  [=](const Meeting& meeting) { std::memcpy(data, meeting.brought.at(peer).data(), bytes); });
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  return ++emulation::grouped().depth, ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  emulation::Grouped& group = emulation::grouped();
  if (--group.depth > 0) return ncclSuccess;
  for (const Comm* const comm : std::exchange(group.aborts, {})) emulation::wait_for_end_of(*comm);
  if (group.pieces.empty()) return ncclSuccess;
  const std::vector<emulation::Piece> pieces = std::exchange(group.pieces, {});
  Comm* const comm = pieces.front().comm;
  emulation::meet(
      comm, nullptr, 0, pieces.front().stream,
      [pieces, rank = comm->rank](const Meeting& meeting) {
        for (const emulation::Piece& piece : pieces)
          if (!piece.sends) emulation::unpack(meeting, piece, rank);
      },
      [pieces] { return emulation::packed(pieces); });
  return ncclSuccess;
}
