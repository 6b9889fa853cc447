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
  int row_dots = -1;  ///< backward: a float for each query of each head, in the workspace ahead of cuDNN's
};

/// y and lse of packed qkv, `shape.batch` sequences.
AttentionTensors forward_graph(CudnnGraph& graph, const AttentionShape& shape, models::DType dtype);
/// dqkv of dy, qkv, y and lse, dq as one product, not added up piece by piece by atomics: the graph whose kernels
/// repeat bit by bit.
AttentionTensors backward_graph(CudnnGraph& graph, const AttentionShape& shape, models::DType dtype);

}  // namespace orrery::exec::cuda
#endif
