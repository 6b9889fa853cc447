#pragma once
/// Flash attention of 16-bit operands by cuDNN: the operator's graph (products, mask, softmax and their gradients),
/// which cuDNN recognises and runs as one kernel. Operands and statistics lie as the own kernels have them, so that
/// either can run the other's backward; what cuDNN has no kernel for is theirs. Backward repeats bit by bit unless it
/// need not, which is faster. Of a ring's block the graph is that of the queries and keys that see each other; an own
/// kernel merges it with the blocks before.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "exec/cuda/cudnn_api.h"
#include "exec/cuda/kernels/kernels.h"
#include "models/dtype.h"

namespace orrery::exec::cuda {

/// Most that attention may take outside the arena, of a device with so much memory: kernels that repeat bit by bit keep
/// the scores' gradients of the sequences that they work on, others those of the queries in fp32. A 64th, 128 MiB at
/// least, 2 GiB at most; cost/stacks/orrery-cuda.yaml has the same share (stack.workspace_share, stack.workspace_most).
[[nodiscard]] std::int64_t attention_workspace(std::int64_t device_bytes);

/// Addresses of one call; those of backward alone are null in forward, those of a ring's block else.
struct AttentionCall {
  models::DType dtype{};
  AttentionShape shape;
  const void* qkv = nullptr;
  void* y = nullptr;
  float* lse = nullptr;
  const void* dy = nullptr;
  void* dqkv = nullptr;  ///< of a block its queries
  bool ring = false;
  RingBlock block = {};
  const void* kv = nullptr;
  void* dkv = nullptr;
};

class CudnnAttention {
 public:
  /// `repeat`: backward by the graph that repeats bit by bit; else by the one that adds dq up by atomics, where cuDNN
  /// has kernels for it, and by the former where not. `most_workspace`: bytes.
  CudnnAttention(const CudnnApi& api, bool repeat, std::int64_t most_workspace);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Queues it. False, with nothing queued, where the own kernels must. The first call of a shape makes its plan, and
  /// may take more memory: `most_workspace` and 1 MiB for all shapes, with so many sequences at a time as that, or what
  /// the device has left, is enough for.
  [[nodiscard]] bool run(const AttentionCall& call, cudaStream_t stream);
  [[nodiscard]] std::string version() const;  ///< "9.19.0"
  [[nodiscard]] std::int64_t workspace_bytes() const;
  /// What `run` has made of a call.
  struct Choice {
    std::string refusal;     ///< why it was left to the own kernels; empty: it was not
    bool repeats = true;     ///< bit by bit
    std::string no_atomics;  ///< why backward repeats though it need not; empty: it does not, or must
  };
  [[nodiscard]] Choice choice(const AttentionCall& call) const;

 private:
  struct Prepared;
  struct Workspace;
  /// backward, dtype, batch, sequence, heads, kv_heads, head_dim, causal; of a block its queries and keys, and whether
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
