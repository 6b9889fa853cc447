#pragma once
/// Selective recomputation of a layer: which operators run again within backward. Lowering runs them, the closed form
/// prices them.
#include <cstdint>
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

/// The columns that recomputation by operator keeps of each product of a block's forward pass, in order: all of every
/// second matrix, from the first on. A product of several matrices counts as so many.
[[nodiscard]] std::vector<std::int64_t> columns_kept(const models::LayerProgram& program);

}  // namespace orrery::plan
