#pragma once
/// The key under which the closed form memoises a layer's costs. Private to cost/.
#include <tuple>

#include "models/layers/expand.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// All that layer_costs reads from a plan. `lockstep`: the ranks with which its groups share links; `first`: the lowest
/// rank of the groups. A new option does not compile here until it is added to the key.
inline auto layer_key(models::LayerKind kind, const models::BlockVariant& block, const models::ExpandOptions& options,
                      const plan::PlanSpec& spec, plan::Recompute recompute, int lockstep, int first) {
  const auto& [batch, sequence, context, tensor, dtype, flash, products, rows, vocab_multiple, dropout, tokens, expert,
               bound, whole, imbalance, dispatch, combine, chunks, at_once] = options;
  const auto& [gradients, activations, rank, minimum_rate, capacity, group, start] = spec.compression;
  return std::make_tuple(kind, block, tensor, context, batch, sequence, recompute, dtype, products, flash, rows,
                         vocab_multiple, dropout, tokens, expert, bound, whole, imbalance, dispatch, combine, chunks,
                         at_once, spec.stages.splits_backward(), spec.recomputation.partition_checkpoints,
                         spec.states.optimizer, gradients, activations, rank, minimum_rate, capacity, group, start,
                         lockstep, first);
}
using LayerKey = decltype(layer_key({}, {}, {}, {}, {}, 0, 0));

}  // namespace orrery::cost
