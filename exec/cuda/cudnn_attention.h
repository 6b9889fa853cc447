#pragma once
/// Flash attention on 16-bit operands by cuDNN: the operator's graph (products, mask, softmax and their gradients),
/// which cuDNN recognises and runs as one kernel. Operands and statistics are laid out as for our own kernels, so that
/// either can run the other's backward; our kernels do what cuDNN has no kernel for. Backward repeats bit by bit unless
/// it is allowed not to, which is faster. For a block of a ring, the graph covers the queries and keys that see each
/// other, and one of our kernels merges it with earlier blocks.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "exec/cuda/cudnn_api.h"
#include "exec/cuda/kernels/kernels.h"
#include "models/dtype.h"

namespace orrery::exec::cuda {

/// The most memory that attention may take outside the arena, on a device with `device_bytes` of memory. Kernels that
/// repeat bit by bit store the gradients of the scores of the sequences that they work on; other kernels store those of
/// the queries in fp32. The limit is a 64th of the memory, at least 128 MiB, at most 2 GiB;
/// cost/stacks/orrery-cuda.yaml has the same share (stack.workspace_share, stack.workspace_most).
[[nodiscard]] std::int64_t attention_workspace(std::int64_t device_bytes);

/// Addresses of one call. Those only for backward are null in forward; those only for a ring's block are null
/// otherwise.
struct AttentionCall {
  models::DType dtype{};
  AttentionShape shape;
  const void* qkv = nullptr;
  void* y = nullptr;
  float* lse = nullptr;
  const void* dy = nullptr;
  void* dqkv = nullptr;  ///< for a block: its queries
  bool ring = false;
  RingBlock block = {};
  const void* kv = nullptr;
  void* dkv = nullptr;
};

class CudnnAttention {
 public:
  /// `repeat`: backward uses the graph that repeats bit by bit. Otherwise it uses the one that sums dq by atomics if
  /// cuDNN has kernels for it, else the former. `most_workspace`: bytes.
  CudnnAttention(const CudnnApi& api, bool repeat, std::int64_t most_workspace);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Queues the call. False, with nothing queued, if our own kernels must do it. The first call of a shape makes its
  /// plan and may allocate: up to `most_workspace` and 1 MiB for all shapes. It works on as many sequences at a time as
  /// fit into that, or into what the device has left.
  [[nodiscard]] bool run(const AttentionCall& call, cudaStream_t stream);
  [[nodiscard]] std::string version() const;  ///< "9.19.0"
  [[nodiscard]] std::int64_t workspace_bytes() const;
  /// What `run` did with a call.
  struct Choice {
    std::string refusal;     ///< why our own kernels did it; empty: cuDNN did
    bool repeats = true;     ///< bit by bit
    std::string no_atomics;  ///< why backward repeats although it need not; empty: it does not, or it must
  };
  [[nodiscard]] Choice choice(const AttentionCall& call) const;

 private:
  struct Prepared;
  struct Workspace;
  /// backward, dtype, batch, sequence, heads, kv_heads, head_dim, causal; for a block its queries and keys, and whether
  /// it is merged
  using Key = std::tuple<bool, int, std::int64_t, std::int64_t, int, int, int, bool, std::int64_t, std::int64_t, bool>;
  [[nodiscard]] static Key key_of(const AttentionCall& call);
  [[nodiscard]] Prepared& prepare(const AttentionCall& call);
  [[nodiscard]] Prepared plan_for(const AttentionCall& call, bool repeat);

  const CudnnApi& api_;
  bool repeat_;
  std::int64_t most_;
  void* handle_ = nullptr;  ///< cudnnHandle_t
  std::unique_ptr<Workspace> workspace_;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace orrery::exec::cuda
