// Plans of attention by cuDNN: made once for a shape, run for as many sequences at a time as the workspace is for.
#include "exec/cuda/cudnn_attention.h"

#include "exec/cuda/check.h"

#if ORRERY_HAVE_CUDNN
#include <optional>
#include <vector>

#include "exec/cuda/cudnn_attention_graph.h"
#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {
namespace {

/// Most that attention takes outside the arena: kernels that repeat bit by bit keep the scores' gradients of the
/// sequences that they work on, others those of the queries in fp32. A GPU is full with a few sequences.
constexpr std::int64_t kMostWorkspace = std::int64_t{128} << 20;
constexpr std::int64_t kAligned = 256;
/// From 9.6 on cuDNN clears what it adds to by atomics.
constexpr std::size_t kClears = 90600;

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

/// What of a call to work on at a time: as many sequences as divide the batch, from all of them down to one; then of
/// one as many groups of heads that share keys as divide their number. Statistics of each group begin at 16 bytes,
/// as cuDNN is told.
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

}  // namespace

struct CudnnAttention::Prepared {
  std::optional<CudnnPlan> plan;  ///< none: refused
  std::string refusal;            ///< why
  bool repeats = true;
  std::string no_atomics;  ///< why it repeats though it need not
  AttentionTensors tensors;
  std::map<std::int64_t, float> scalars;
  AttentionShape part;                     ///< sequences and heads at a time
  std::int64_t row_dots = 0, dq_sums = 0;  ///< bytes of the workspace ahead of cuDNN's
  std::byte* workspace = nullptr;
};

/// Of two sizes, each taken once and kept: graphs of steps remember the address.
struct CudnnAttention::Workspace {
  DeviceMemory small, large;

  [[nodiscard]] std::byte* of(std::int64_t bytes) {
    constexpr std::int64_t kSmall = std::int64_t{1} << 20;
    if (bytes == 0) return nullptr;
    DeviceMemory& memory = bytes <= kSmall ? small : large;
    const std::int64_t size = bytes <= kSmall ? kSmall : kMostWorkspace;
    if (!memory.data()) memory = DeviceMemory(static_cast<std::size_t>(size), "allocating the workspace of attention");
    return static_cast<std::byte*>(memory.data());
  }
};

CudnnAttention::CudnnAttention(const CudnnApi& api, bool repeat)
    : api_(api), repeat_(repeat), workspace_(std::make_unique<Workspace>()) {
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
  return {
      call.dy != nullptr, static_cast<int>(call.dtype), s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, s.causal};
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
  const bool backward = call.dy != nullptr;
  Prepared out;
  out.repeats = repeat;
  double for_each = 0;  // sequence and head, bytes
  for (const AttentionShape& some : parts_of(s)) {
    const auto pieces = static_cast<double>(some.batch * some.heads);
    if (for_each * pieces > static_cast<double>(kMostWorkspace)) continue;
    try {
      CudnnGraph graph(api_);
      out.tensors = backward ? backward_graph(graph, some, s, call.dtype,
                                              repeat ? QueryGradient::product : QueryGradient::atomics)
                             : forward_graph(graph, some, s, call.dtype);
      CudnnPlan plan =
          graph.plan(static_cast<cudnnHandle_t>(handle_), repeat ? CudnnKernels::not_noted : CudnnKernels::any);
      const std::int64_t floats = some.batch * some.heads * s.sequence * static_cast<std::int64_t>(sizeof(float));
      out.row_dots = out.tensors.row_dots < 0 ? 0 : round_up(floats);
      out.dq_sums = out.tensors.dq_sums < 0 ? 0 : round_up(floats * s.head_dim);
      const std::int64_t bytes = out.row_dots + out.dq_sums + plan.workspace_bytes;
      if (bytes > kMostWorkspace) {
        for_each = static_cast<double>(bytes) / pieces;
        out.refusal = "cuDNN's kernel wants " + std::to_string(bytes) + " bytes at once";
        continue;
      }
      out.workspace = workspace_->of(bytes);
      out.scalars = graph.scalars();
      out.part = some;
      out.plan.emplace(std::move(plan));
      out.refusal.clear();
      break;
    } catch (const CudnnRefused& refusal) {
      out.refusal = refusal.what();
      break;  // a kernel that is not there for many sequences is not there for few
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
  constexpr std::int64_t kElement = 2;  // bytes
  const AttentionShape& part = p.part;
  const std::int64_t d = s.head_dim, heads = s.heads * d, keys = s.kv_heads * d;
  const auto run_part = [&](std::int64_t sequence, std::int64_t head) {
    std::vector<std::int64_t> ids;
    std::vector<void*> addresses;
    const auto give = [&](int id, const void* base, std::int64_t bytes) {
      if (id < 0) return;
      ids.push_back(id);
      addresses.push_back(static_cast<std::byte*>(const_cast<void*>(base)) + bytes);
    };
    const std::int64_t rows = sequence * s.sequence, key_head = head * s.kv_heads / s.heads;
    const std::int64_t of_q = (rows * (heads + 2 * keys) + head * d) * kElement;
    const std::int64_t of_k = (rows * (heads + 2 * keys) + heads + key_head * d) * kElement;
    const std::int64_t of_v = of_k + keys * kElement, of_y = (rows * heads + head * d) * kElement;
    give(p.tensors.q, call.qkv, of_q);
    give(p.tensors.k, call.qkv, of_k);
    give(p.tensors.v, call.qkv, of_v);
    give(p.tensors.y, call.y, of_y);
    give(p.tensors.lse, call.lse, (rows * s.heads + head * s.sequence) * static_cast<std::int64_t>(sizeof(float)));
    give(p.tensors.dy, call.dy, of_y);
    give(p.tensors.dq, call.dqkv, of_q);
    give(p.tensors.dk, call.dqkv, of_k);
    give(p.tensors.dv, call.dqkv, of_v);
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
    void* const rest = p.workspace + p.row_dots + p.dq_sums;
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, rest);
    pack.finalise();
    check_status(api_.execute(static_cast<cudnnHandle_t>(handle_), p.plan->plan.raw(), pack.raw()), "attention");
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
CudnnAttention::CudnnAttention(const CudnnApi& api, bool repeat) : api_(api), repeat_(repeat) {}
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
