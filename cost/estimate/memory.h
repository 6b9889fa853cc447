#pragma once
/// Bytes of one rank of a pipeline stage, without lowering: what lives for the whole run, one slab of saved activations
/// per micro-batch in flight, and what one pass needs in addition. The regions are those of plan/schedule/place.h.
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/estimate/estimate.h"
#include "cost/estimate/layer_costs.h"
#include "cost/estimate/pair_memory.h"
#include "cost/parameters/memory_recipe.h"
#include "plan/outline/outline.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A bucket of parameters (plan/outline/outline.h), and the number of equal ones in a row.
struct BucketSize : plan::BucketShape {
  std::int64_t count = 1;   ///< equal buckets in a row
  bool written = false;     ///< its first pass can write gradients (plan/lower/write_first.h)
  bool alternates = false;  ///< with the one before it: each layer has both
};

/// A run of equal layers of a stage.
struct LayerRun {
  const LayerCosts* costs = nullptr;
  std::int64_t count = 1;
  bool operator==(const LayerRun&) const = default;
};

/// The buckets of a stage that train, in order; equal neighbours are one entry.
[[nodiscard]] std::vector<BucketSize> buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec);
/// The same of the buckets that do not train (models/lora.h).
[[nodiscard]] std::vector<BucketSize> frozen_buckets_of(const std::vector<LayerRun>& layers,
                                                        const plan::PlanSpec& spec);
/// One of a layer's, which must outlive it; and the one beside it that does not train.
[[nodiscard]] plan::BucketShape shape_of(LayerBucket of, const LayerCosts& layer, const plan::PlanSpec& spec);
[[nodiscard]] plan::BucketShape frozen_shape_of(LayerBucket of, const LayerCosts& layer, const plan::PlanSpec& spec);

struct EndMemory;  // cost/estimate/lowered_end.h
class PassMemo;    // cost/estimate/pass_lives.h
class MovesMemo;   // cost/estimate/stage_moves.h

/// What many plans share.
struct MemoryMemos {
  PassMemo& passes;
  MovesMemo& moves;
};

/// `chunks`: the stage's layers in forward order, by virtual stage. `software`: bytes outside the arena, counted only
/// for MemoryKind::device. `elsewhere`: of the step's end, if states or parameters live outside the device; else null.
/// `pairs`: of passes that stand beside each other, in an arena; else none.
/// `one_copy`: parameters that train, and their gradients, exist in the compute dtype alone (stack.one_copy).
[[nodiscard]] StageMemory stage_memory(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                                       plan::StageId stage, std::int64_t micro_batches, double software,
                                       const EndMemory* elsewhere, std::optional<PairBytes> pairs, MemoryMemos memos,
                                       MemoryRecipe recipe = {}, MemoryQuestion question = {}, bool one_copy = false);

/// What each sequence of a micro-batch adds to a tensor's bytes at least, from those of a micro-batch of one: not what
/// fills it up to the arena's alignment.
[[nodiscard]] double bytes_by_rows(const Life& life);

enum class Bound { least, most };
/// A bound of the total, from layers of micro-batches of one sequence: what passes keep grows with the sequences. Of
/// frameworks' memory (MemoryRecipe::stated), and of plans that keep_rows; the upper one of whole stages.
[[nodiscard]] double bound_of_stage(Bound bound, const std::vector<std::vector<LayerRun>>& one_sequence,
                                    const plan::PlanSpec& spec, plan::StageId stage, double software, MemoryMemos memos,
                                    MemoryRecipe recipe, bool one_copy);
/// Whether all that a plan's passes keep stays on the device as it is, in an order of whole passes that drains, and
/// its rows can be divided by sequences.
[[nodiscard]] bool keeps_rows(const plan::PlanSpec& spec, const models::Model& model);

/// What of that needs nothing but the sizes of parameters: a lower bound of its total, where nothing of `software` is
/// left out.
[[nodiscard]] double states_of_stage(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, double software,
                                     const MemoryRecipe& recipe, bool one_copy);

}  // namespace orrery::cost
