#pragma once
/// Operators of dropout, ReLU, and the storage of ReLU's outputs; masks as one rank's operator draws them.
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// The draw for `op` at its rank's and micro-batch's place in `context`. `begun`: the training step that `step` on the
/// device holds.
[[nodiscard]] DropoutDraw draw_of(const models::Op& op, const StepContext& context, const std::int64_t* step,
                                  std::int64_t begun);
/// Masks for a call's n rows; without dropout they drop nothing.
[[nodiscard]] RowMasks row_masks(const Call& call);
/// Masks for the probabilities of attention and related operators.
[[nodiscard]] ScoreMasks score_masks(const Call& call);

void run_dropped(const Call& call);    ///< dropout, alone or with add_bias
void run_rectified(const Call& call);  ///< relu, relu_grad
void run_sparse(const Call& call);     ///< sparse_encode, sparse_decode

}  // namespace orrery::exec::cuda
