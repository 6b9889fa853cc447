#pragma once
/// The graphs of attention, forward and backward, and which of their tensors is what.
#include "exec/cuda/cudnn_graph.h"

#if ORRERY_HAVE_CUDNN
#include "exec/cuda/kernels/kernels.h"
#include "models/dtype.h"

namespace orrery::exec::cuda {

/// Ids of tensors in memory; -1: not in this graph.
struct AttentionTensors {
  int q = -1, k = -1, v = -1, y = -1, lse = -1;
  int dy = -1, dq = -1, dk = -1, dv = -1;
  // Backward, in the workspace ahead of cuDNN's:
  int row_dots = -1;  ///< a float for each query of each head
  int dq_sums = -1;   ///< dq in fp32, packed by heads; of the graph that adds it up by atomics
};

/// How the pieces of dq, one of each block of keys, come together.
enum class QueryGradient {
  product,  ///< as one product of the scores' gradients, which go through memory: kernels that repeat bit by bit
  atomics,  ///< added up in fp32 in whatever order the blocks end; no gradients of scores in memory
};

/// What attends to what, and where it lies: all of packed qkv, or a block of a ring.
struct AttentionScope {
  std::int64_t queries = 0, keys = 0;  ///< of each sequence
  bool triangle = false;               ///< a causal mask, of as many keys as queries
  std::int64_t key_row = 0;            ///< elements from one key to the next, as from one value, and their gradients
  bool apart = false;  ///< forward y and lse, backward dq lie by themselves: (batch, queries, heads, dim) of the part
};

/// y and lse of q, k and v: `part` of them, sequences and heads, which lie in memory as those of `whole` do.
AttentionTensors forward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                               const AttentionScope& scope, models::DType dtype);
/// dq, dk and dv of dy, q, k, v, y and lse.
AttentionTensors backward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                                const AttentionScope& scope, models::DType dtype, QueryGradient how);

}  // namespace orrery::exec::cuda
#endif
