#pragma once
/// Selective recomputation of a layer: which operators run again within backward. Lowering runs them, the closed form
/// prices them.
#include <cstddef>
#include <vector>

#include "models/layers/expand.h"
#include "plan/spec/parts.h"

namespace orrery::plan {

/// A layer's backward pass in which modules are recomputed, each just before what it makes is first read. Without
/// modules: as it is. `whole`: a mixture is repeated with what backward does not read, as PyTorch's checkpoint does
/// (LowerOptions::recompute_whole_layer).
[[nodiscard]] std::vector<models::Part> backward_parts(const models::LayerProgram& program, const Repeats& repeats,
                                                       bool whole = false);
/// The tensors that these operators write, which forward's values do not wait for, including those that are rows of
/// others.
[[nodiscard]] std::vector<models::TensorId> made_again(const models::LayerProgram& program, const Repeats& repeats,
                                                       bool whole = false);

/// Recomputation by operator keeps of a block's products every second matrix, from the first on; a product of several
/// matrices counts as so many. Adds a tensor for these columns, which forward's products write and the repeated ones
/// read, unless a product is kept whole and its result waits by itself. For programs of which backward_parts() and
/// made_again() are asked with Repeats::operators.
void keep_columns(models::LayerProgram& program);
/// Places of that tensor among the operands of models::OpKind::matmul.
inline constexpr std::size_t kKeptRead = 3, kKeptWritten = 2;

}  // namespace orrery::plan
