#pragma once
/// Plans that keep activations outside device memory, in closed form: what stays, and what leaves. Matches the lowering
/// in plan/lower/offload.h.
#include <cstdint>
#include <memory>
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/stage_moves.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// The stages' moves over as many micro-batches as have every pattern of the order.
[[nodiscard]] std::shared_ptr<const StageMoves> patterns_of(const plan::PlanSpec& spec, std::int64_t micro_batches,
                                                            MovesMemo& memo);
/// How many blocks at the top of a chunk keep their saved tensors on the device, because backward follows at once.
[[nodiscard]] std::int64_t staying_blocks(const plan::PlanSpec& spec, plan::StageId stage, int chunk, bool head,
                                          std::int64_t micro_batches, MovesMemo& moves);
/// The most micro-batches of a chunk that are between their forward and backward passes at the same time.
[[nodiscard]] std::int64_t most_in_flight(const plan::PlanSpec& spec, plan::StageId stage, int chunk,
                                          std::int64_t micro_batches, MovesMemo& moves);

/// Whether a tensor waits for backward, in a slab or on the host.
[[nodiscard]] bool crosses(const LayerCosts& layer, LifeId index);
/// In a split backward: whether only the weights' gradients read this saved tensor of a block. It always goes to the
/// host, because no pass of the weights follows forward at once, and comes back in that pass.
[[nodiscard]] bool waits_for_weights(const LayerCosts& layer, LifeId index);
/// Bytes that one layer keeps from forward to backward for one micro-batch.
[[nodiscard]] double saved_bytes(const LayerCosts& layer);

/// Bytes offloaded by all layers of a chunk except the `staying` blocks at its top.
[[nodiscard]] double leaving_bytes(const std::vector<LayerRun>& layers, std::int64_t staying);

}  // namespace orrery::cost
