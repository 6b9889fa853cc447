#pragma once
/// Decides which neighbours among a compute step's operators become one kernel, from operators and addresses alone.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

enum class Fused : std::uint8_t {
  no,
  product_gelu,       ///< matmul in 16 bits, then gelu of its result: an epilogue that writes both
  product_gelu_grad,  ///< matmul in 16 bits, then gelu_grad of its result in place: an epilogue
  add_norm,           ///< add_bias, then layer_norm or rms_norm of the sum
  softmax_pair,       ///< softmax_max, then softmax_sum of the same logits
  whole_loss,         ///< these two, then cross_entropy and, in place of the logits, cross_entropy_grad
  product_bias_grad   ///< bias_grad, then the weight gradient's product of the same rows: an epilogue
};

/// Operators [first, first + count) of a step, run as one.
struct FusedGroup {
  std::size_t first = 0, count = 1;
  Fused kind = Fused::no;
  bool operator==(const FusedGroup&) const = default;
};

struct FusionOptions {
  /// Include groups for epilogues. exec/cuda/epilogues.h decides whether such a group then runs as one kernel.
  bool epilogues = true;
};

/// Whether a step's last operator may fuse with the first ones of the next step: a residual's addition with a norm.
[[nodiscard]] bool may_wait(const OpCall& call);

/// Covers all calls, in order. Neighbours form a group only if each operand of a later one that should be an earlier
/// one's memory really is, and if everything that the group does not keep is overwritten anyway. If operators belong to
/// different steps, a later one may write where an earlier one reads values that are not needed any more: such
/// neighbours form no group.
[[nodiscard]] std::vector<FusedGroup> fuse(std::span<const OpCall> calls, const FusionOptions& options);

}  // namespace orrery::exec::cuda
