#pragma once
/// Attention's graphs, forward and backward, and the roles of their tensors.
#include "exec/cuda/cudnn_graph.h"

#if ORRERY_HAVE_CUDNN
#include "exec/cuda/kernels/kernels.h"
#include "models/dtype.h"

namespace orrery::exec::cuda {

/// Ids of tensors in memory; -1: not in this graph.
struct AttentionTensors {
  int q = -1, k = -1, v = -1, y = -1, lse = -1;
  int dy = -1, dq = -1, dk = -1, dv = -1;
  // Backward, in the workspace before cuDNN's:
  int row_dots = -1;  ///< one float per query and head
  int dq_sums = -1;   ///< dq in fp32, packed by heads; for the graph that sums it by atomics
};

/// How the contributions to dq, one per block of keys, are combined.
enum class QueryGradient {
  product,  ///< one product of the scores' gradients, which go through memory: for kernels that repeat bit by bit
  atomics,  ///< summed in fp32 in the order in which blocks end; no gradients of scores in memory
};

/// Which queries attend to which keys, and the layout: all of packed qkv, or a block of a ring.
struct AttentionScope {
  std::int64_t queries = 0, keys = 0;  ///< per sequence
  bool triangle = false;               ///< a causal mask, with as many keys as queries
  std::int64_t key_row = 0;            ///< elements from one key to the next, and so for values and their gradients
  bool apart = false;  ///< forward y and lse, or backward dq, are separate: (batch, queries, heads, dim) of the part
};

/// y and lse from q, k and v: for `part` of the sequences and heads, laid out in memory as in `whole`.
AttentionTensors forward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                               const AttentionScope& scope, models::DType dtype);
/// dq, dk and dv from dy, q, k, v, y and lse.
AttentionTensors backward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                                const AttentionScope& scope, models::DType dtype, QueryGradient how);

}  // namespace orrery::exec::cuda
#endif
