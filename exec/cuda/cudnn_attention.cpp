// Plans of attention by cuDNN: made once per shape, run for as many sequences at a time as fit the workspace.
#include "exec/cuda/cudnn_attention.h"

#include <algorithm>

#include "exec/cuda/check.h"

namespace orrery::exec::cuda {

std::int64_t attention_workspace(std::int64_t device_bytes) {
  constexpr std::int64_t kShare = 64, kLeast = std::int64_t{128} << 20, kMost = std::int64_t{2} << 30;
  return std::clamp(device_bytes / kShare, kLeast, kMost);
}

}  // namespace orrery::exec::cuda

#if ORRERY_HAVE_CUDNN
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <optional>
#include <vector>

#include "exec/cuda/cudnn_attention_graph.h"
#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::int64_t kAligned = 256;
constexpr std::int64_t kElement = 2;  // bytes
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
/// From 9.6 on, cuDNN itself clears what it adds to by atomics.
constexpr std::size_t kClears = 90600;

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

/// The parts into which a call may be divided: numbers of sequences that divide the batch, from all down to one; then
/// of one sequence, numbers of groups of heads (which share keys) that divide theirs. Each group's statistics begin at
/// multiples of 16 bytes, as cuDNN is told.
std::vector<AttentionShape> parts_of(const AttentionShape& whole) {
  constexpr std::int64_t kFloats = 4;
  std::vector<AttentionShape> out;
  for (std::int64_t parts = 1; parts <= whole.batch; ++parts) {
    if (whole.batch % parts != 0) continue;
    out.push_back(whole);
    out.back().batch = whole.batch / parts;
  }
  for (int parts = 2; parts <= whole.kv_heads; ++parts) {
    if (whole.kv_heads % parts != 0 || whole.heads / parts * whole.sequence % kFloats != 0) continue;
    out.push_back(whole);
    out.back().batch = 1;
    out.back().heads = whole.heads / parts;
    out.back().kv_heads = whole.kv_heads / parts;
  }
  return out;
}

/// Whether a block's own result is merged with what is there.
bool merged(const AttentionCall& call) {
  return call.ring && call.block.accumulate;
}

AttentionScope scope_of(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  if (!call.ring)
    return {s.sequence, s.sequence, s.causal, static_cast<std::int64_t>(s.heads + 2 * s.kv_heads) * s.head_dim, false};
  return {s.sequence - call.block.first_query, call.block.keys, call.block.triangle,
          2 * static_cast<std::int64_t>(s.kv_heads) * s.head_dim, merged(call)};
}

/// For part of the sequences and heads.
BlockPlace place_of(const AttentionCall& call, const AttentionShape& some) {
  return {some.batch, scope_of(call).queries, call.shape.sequence, some.heads, call.shape.heads, some.head_dim};
}

template <class T>
void merge_as(cudaStream_t stream, const BlockPlace& place, const std::byte* block, const std::byte* block_lse, void* y,
              float* lse) {
  merge_ring_block(stream, place, reinterpret_cast<const T*>(block), reinterpret_cast<const float*>(block_lse),
                   static_cast<T*>(y), lse);
}
template <class T>
void add_as(cudaStream_t stream, const BlockPlace& place, const std::byte* block, void* dq, std::int64_t stride) {
  add_ring_queries(stream, place, reinterpret_cast<const T*>(block), static_cast<T*>(dq), stride);
}

}  // namespace

struct CudnnAttention::Prepared {
  std::optional<CudnnPlan> plan;  ///< none: refused
  std::string refusal;            ///< why
  bool repeats = true;
  std::string no_atomics;  ///< why it repeats though it need not
  AttentionTensors tensors;
  std::map<std::int64_t, float> scalars;
  AttentionShape part;  ///< sequences and heads at a time
  /// Bytes of workspace before cuDNN's, in this order. The block's y or dq, and its lse, are there only if they are
  /// merged.
  std::int64_t row_dots = 0, dq_sums = 0, block = 0, block_lse = 0;
  std::byte* workspace = nullptr;
  [[nodiscard]] std::int64_t ahead() const { return row_dots + dq_sums + block + block_lse; }
};

/// Workspaces of two sizes. Each is allocated once and kept, because graphs of steps remember the address.
struct CudnnAttention::Workspace {
  DeviceMemory small, large;

  /// This many bytes, or null if they are not available: limited by `most`, or by what the plan has left of that.
  [[nodiscard]] std::byte* of(std::int64_t bytes, std::int64_t most) {
    constexpr std::int64_t kSmall = std::int64_t{1} << 20;
    DeviceMemory& memory = bytes <= kSmall ? small : large;
    for (std::int64_t size = bytes <= kSmall ? kSmall : most; !memory.data() && size >= bytes; size /= 2) try {
        memory = DeviceMemory(static_cast<std::size_t>(size), "allocating the workspace of attention");
      } catch (const Failure&) {
        static_cast<void>(cudaGetLastError());
      }
    return static_cast<std::int64_t>(memory.bytes()) >= bytes ? static_cast<std::byte*>(memory.data()) : nullptr;
  }
};

CudnnAttention::CudnnAttention(const CudnnApi& api, bool repeat, std::int64_t most_workspace)
    : api_(api), repeat_(repeat), most_(most_workspace), workspace_(std::make_unique<Workspace>()) {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = api_.create(&handle);
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnRefused(std::string("cuDNN does not start: ") + api_.error_string(status));
  handle_ = handle;
}

CudnnAttention::~CudnnAttention() {
  prepared_.clear();
  api_.destroy(static_cast<cudnnHandle_t>(handle_));
}

std::int64_t CudnnAttention::workspace_bytes() const {
  return static_cast<std::int64_t>(workspace_->small.bytes() + workspace_->large.bytes());
}

CudnnAttention::Key CudnnAttention::key_of(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  const AttentionScope scope = scope_of(call);
  return {call.dy != nullptr,
          static_cast<int>(call.dtype),
          s.batch,
          s.sequence,
          s.heads,
          s.kv_heads,
          s.head_dim,
          scope.triangle,
          scope.queries,
          call.ring ? scope.keys : 0,
          scope.apart};
}

CudnnAttention::Choice CudnnAttention::choice(const AttentionCall& call) const {
  const auto found = prepared_.find(key_of(call));
  if (found == prepared_.end()) return {};
  const Prepared& p = *found->second;
  return {p.plan ? std::string() : p.refusal, p.repeats, p.no_atomics};
}

CudnnAttention::Prepared& CudnnAttention::prepare(const AttentionCall& call) {
  std::unique_ptr<Prepared>& known = prepared_[key_of(call)];
  if (known) return *known;
  const bool may_differ = call.dy && !repeat_;
  known = std::make_unique<Prepared>(plan_for(call, !may_differ));
  if (may_differ && !known->plan) {
    std::string no_atomics = std::move(known->refusal);
    known = std::make_unique<Prepared>(plan_for(call, true));
    known->no_atomics = std::move(no_atomics);
  }
  return *known;
}

CudnnAttention::Prepared CudnnAttention::plan_for(const AttentionCall& call, bool repeat) {
  const AttentionShape& s = call.shape;
  const AttentionScope scope = scope_of(call);
  const bool backward = call.dy != nullptr;
  Prepared out;
  out.repeats = repeat;
  double for_each = 0;  // bytes per sequence and head
  for (const AttentionShape& some : parts_of(s)) {
    const auto pieces = static_cast<double>(some.batch * some.heads);
    if (for_each * pieces > static_cast<double>(most_)) continue;
    try {
      CudnnGraph graph(api_);
      out.tensors = backward ? backward_graph(graph, some, s, scope, call.dtype,
                                              repeat ? QueryGradient::product : QueryGradient::atomics)
                             : forward_graph(graph, some, s, scope, call.dtype);
      CudnnPlan plan =
          graph.plan(static_cast<cudnnHandle_t>(handle_), repeat ? CudnnKernels::not_noted : CudnnKernels::any);
      const std::int64_t rows = some.batch * some.heads * scope.queries;
      out.row_dots = out.tensors.row_dots < 0 ? 0 : round_up(rows * kFloat);
      out.dq_sums = out.tensors.dq_sums < 0 ? 0 : round_up(rows * s.head_dim * kFloat);
      out.block = scope.apart ? round_up(rows * s.head_dim * kElement) : 0;
      out.block_lse = scope.apart && !backward ? round_up(rows * kFloat) : 0;
      const std::int64_t bytes = out.ahead() + plan.workspace_bytes;
      out.workspace = bytes == 0 ? nullptr : workspace_->of(bytes, most_);
      if (bytes > 0 && !out.workspace) {
        if (bytes > most_) for_each = static_cast<double>(bytes) / pieces;
        out.refusal = "cuDNN's kernel wants " + std::to_string(bytes) + " bytes at once";
        continue;
      }
      out.scalars = graph.scalars();
      out.part = some;
      out.plan.emplace(std::move(plan));
      out.refusal.clear();
      break;
    } catch (const CudnnRefused& refusal) {
      out.refusal = refusal.what();
      break;  // a kernel missing for many sequences is also missing for few
    }
  }
  return out;
}

bool CudnnAttention::run(const AttentionCall& call, cudaStream_t stream) {
  Prepared& p = prepare(call);
  if (!p.plan) return false;
  const AttentionShape& s = call.shape;
  const auto check_status = [&](cudnnStatus_t status, const char* doing) {
    if (status != CUDNN_STATUS_SUCCESS)
      throw Failure(std::string("cuDNN: ") + doing + ": " + api_.error_string(status));
  };
  check_status(api_.set_stream(static_cast<cudnnHandle_t>(handle_), stream), "choosing the stream");
  const AttentionShape& part = p.part;
  const AttentionScope scope = scope_of(call);
  const std::int64_t d = s.head_dim, heads = s.heads * d, keys = s.kv_heads * d, row = heads + 2 * keys;
  // In a ring, keys that no query sees have no gradient, and queries before the block's first have none of these keys.
  if (call.dkv && scope.keys < s.sequence)
    check(
        cudaMemsetAsync(call.dkv, 0, static_cast<std::size_t>(s.batch * s.sequence * scope.key_row * kElement), stream),
        "clearing the gradients of keys");
  const void* const keys_at = call.ring ? call.kv : static_cast<const std::byte*>(call.qkv) + heads * kElement;
  void* const key_gradients = call.ring   ? call.dkv
                              : call.dqkv ? static_cast<std::byte*>(call.dqkv) + heads * kElement
                                          : nullptr;
  const std::int64_t first = call.ring ? call.block.first_query : 0;
  const auto run_part = [&](std::int64_t sequence, std::int64_t head) {
    std::vector<std::int64_t> ids;
    std::vector<void*> addresses;
    const auto give = [&](int id, const void* base, std::int64_t bytes) {
      if (id < 0) return;
      ids.push_back(id);
      addresses.push_back(static_cast<std::byte*>(const_cast<void*>(base)) + bytes);
    };
    const std::int64_t rows = sequence * s.sequence, key_head = head * s.kv_heads / s.heads;
    const std::int64_t of_q = ((rows + first) * row + head * d) * kElement;
    const std::int64_t of_k = (rows * scope.key_row + key_head * d) * kElement, of_v = of_k + keys * kElement;
    const std::int64_t of_y = ((rows + first) * heads + head * d) * kElement;
    const std::int64_t of_lse = (rows * s.heads + head * s.sequence + first) * kFloat;
    std::byte* const block = p.workspace + p.row_dots + p.dq_sums;
    const bool apart = scope.apart && !call.dy, dq_apart = scope.apart && call.dy;
    give(p.tensors.q, call.qkv, of_q);
    give(p.tensors.k, keys_at, of_k);
    give(p.tensors.v, keys_at, of_v);
    give(p.tensors.y, apart ? block : call.y, apart ? 0 : of_y);
    give(p.tensors.lse, apart ? static_cast<void*>(block + p.block) : call.lse, apart ? 0 : of_lse);
    give(p.tensors.dy, call.dy, of_y);
    give(p.tensors.dq, dq_apart ? block : call.dqkv, dq_apart ? 0 : of_q);
    give(p.tensors.dk, key_gradients, of_k);
    give(p.tensors.dv, key_gradients, of_v);
    give(p.tensors.row_dots, p.workspace, 0);
    give(p.tensors.dq_sums, p.workspace, p.row_dots);
    if (p.dq_sums > 0 && api_.version() < kClears)
      check(cudaMemsetAsync(p.workspace + p.row_dots, 0, static_cast<std::size_t>(p.dq_sums), stream),
            "clearing the sums of attention's dq");
    for (auto& [id, value] : p.scalars) {
      ids.push_back(id);
      addresses.push_back(&value);
    }
    CudnnDescriptor pack(api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(ids.size()), ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(addresses.size()),
             addresses.data());
    void* const rest = p.workspace + p.ahead();
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, rest);
    pack.finalise();
    check_status(api_.execute(static_cast<cudnnHandle_t>(handle_), p.plan->plan.raw(), pack.raw()), "attention");
    const bool bf16 = call.dtype == models::DType::bf16;
    const BlockPlace place = place_of(call, part);
    if (apart) {
      auto* const y = static_cast<std::byte*>(call.y) + of_y;
      float* const lse = call.lse + of_lse / kFloat;
      bf16 ? merge_as<__nv_bfloat16>(stream, place, block, block + p.block, y, lse)
           : merge_as<__half>(stream, place, block, block + p.block, y, lse);
    } else if (dq_apart) {
      auto* const dq = static_cast<std::byte*>(call.dqkv) + of_q;
      bf16 ? add_as<__nv_bfloat16>(stream, place, block, dq, row) : add_as<__half>(stream, place, block, dq, row);
    }
  };
  for (std::int64_t sequence = 0; sequence < s.batch; sequence += part.batch)
    for (std::int64_t head = 0; head < s.heads; head += part.heads) run_part(sequence, head);
  return true;
}

std::string CudnnAttention::version() const {
  constexpr std::size_t kMajor = 10000, kMinor = 100;
  const std::size_t v = api_.version();
  return std::to_string(v / kMajor) + "." + std::to_string(v % kMajor / kMinor) + "." + std::to_string(v % kMinor);
}

}  // namespace orrery::exec::cuda
#else

namespace orrery::exec::cuda {

struct CudnnAttention::Prepared {};
struct CudnnAttention::Workspace {};
CudnnAttention::CudnnAttention(const CudnnApi& api, bool repeat, std::int64_t most)
    : api_(api), repeat_(repeat), most_(most) {}
CudnnAttention::~CudnnAttention() = default;
bool CudnnAttention::run(const AttentionCall&, cudaStream_t) {
  return false;
}
std::int64_t CudnnAttention::workspace_bytes() const {
  return 0;
}
std::string CudnnAttention::version() const {
  return {};
}
CudnnAttention::Choice CudnnAttention::choice(const AttentionCall&) const {
  return {};
}

}  // namespace orrery::exec::cuda
#endif
