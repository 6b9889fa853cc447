#pragma once
/// Operators of dropout, ReLU and of the storage of what it leaves; masks as one rank's operator draws them.
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// `op` with dropout as `context` has it: where its rank and its micro-batch stand. `begun`: the training step that
/// `step` on the device says.
[[nodiscard]] DropoutDraw draw_of(const models::Op& op, const StepContext& context, const std::int64_t* step,
                                  std::int64_t begun);
/// Of the n rows of a call. Without dropout: of nothing.
[[nodiscard]] RowMasks row_masks(const Call& call);
/// Of the probabilities of attention and its kin.
[[nodiscard]] ScoreMasks score_masks(const Call& call);

void run_dropped(const Call& call);    ///< dropout, and add_bias with it
void run_rectified(const Call& call);  ///< relu, relu_grad
void run_sparse(const Call& call);     ///< sparse_encode, sparse_decode

}  // namespace orrery::exec::cuda
