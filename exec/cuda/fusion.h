#pragma once
/// Which neighbours among a compute step's operators become one kernel. Decided from operators and addresses alone.
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
  whole_loss,         ///< these, then cross_entropy and, in the logits' place, cross_entropy_grad
  product_bias_grad   ///< bias_grad, then the product of the same rows that is the weight's gradient: an epilogue
};

/// Operators [first, first + count) of a step, as one.
struct FusedGroup {
  std::size_t first = 0, count = 1;
  Fused kind = Fused::no;
  bool operator==(const FusedGroup&) const = default;
};

struct FusionOptions {
  /// Groups that are an epilogue's; whether such a group then runs as one is exec/cuda/epilogues.h's.
  bool epilogues = true;
};

/// Whether the last operator of a step may be one with what begins the next: a residual's addition, with a norm.
[[nodiscard]] bool may_wait(const OpCall& call);

/// Covers all calls, in order. Neighbours are one group only where every operand of a later one is the memory of an
/// earlier one that it should be, and what it does not keep is overwritten anyway. Of different steps' operators a
/// later one may write where an earlier one reads what nobody needs any more: these are no group.
[[nodiscard]] std::vector<FusedGroup> fuse(std::span<const OpCall> calls, const FusionOptions& options);

}  // namespace orrery::exec::cuda
