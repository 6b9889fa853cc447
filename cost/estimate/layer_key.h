#pragma once
/// The key under which the closed form memoises a layer's costs. Private to cost/.
#include <tuple>

#include "models/layers/expand.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// All on which a layer's program depends. A new option does not compile here until it is added to the key.
inline auto program_key(models::LayerKind kind, const models::BlockVariant& block,
                        const models::ExpandOptions& options) {
  const auto& [batch, sequence, context, tensor, dtype, flash, products, rows, vocab_multiple, dropout, tokens, expert,
               bound, ways, imbalance, dispatch, combine, chunks, at_once] = options;
  return std::make_tuple(kind, block, tensor, context, batch, sequence, dtype, products, flash, rows, vocab_multiple,
                         dropout, tokens, expert, bound, ways, imbalance, dispatch, combine, chunks, at_once);
}
using ProgramKey = decltype(program_key({}, {}, {}));

/// And all that layer_costs reads from a plan.
inline auto layer_key(const ProgramKey& program, const plan::PlanSpec& spec, const plan::Repeats& repeats) {
  const auto& [gradients, activations, rank, minimum_rate, capacity, group, start] = spec.compression;
  return std::tuple_cat(program, std::make_tuple(repeats, spec.stages.splits_backward(),
                                                 spec.recomputation.partition_checkpoints, spec.states.optimizer,
                                                 gradients, activations, rank, minimum_rate, capacity, group, start));
}
using LayerKey = decltype(layer_key({}, {}, {}));

/// All on which the sizes of a layer's parameters and of their states depend.
inline auto parameter_key(models::LayerKind kind, const models::BlockVariant& block,
                          const models::ExpandOptions& options, const plan::PlanSpec& spec) {
  return std::make_tuple(kind, block, options.tensor, options.dtype, options.vocab_multiple, options.expert,
                         options.expert_ways, spec.states.optimizer);
}
using ParameterKey = decltype(parameter_key({}, {}, {}, {}));

}  // namespace orrery::cost
