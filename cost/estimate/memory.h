#pragma once
/// Bytes of one rank of a pipeline stage, without lowering: what lives for the whole run, one slab of saved activations
/// per micro-batch in flight, and what one pass needs in addition. The regions are those of plan/schedule/place.h.
#include <cstdint>
#include <vector>

#include "cost/estimate/estimate.h"
#include "cost/estimate/layer_costs.h"
#include "cost/parameters/memory_recipe.h"
#include "plan/lower/factors.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A flat bucket of parameters, padded as in plan/lower/buckets.h.
struct BucketSize {
  std::int64_t elements = 0;    ///< padded to shards
  std::int64_t shard = 0;       ///< elements / replicas
  std::int64_t count = 1;       ///< equal buckets in a row
  std::int64_t partial = 0;     ///< elements whose gradients are summed over the tensor group
  std::int64_t parameters = 0;  ///< number of tensors
  plan::FactorCount factors = {};
  bool embedding = false;  ///< contains the input tables
  bool experts = false;    ///< contains the rank's own experts
  bool written = false;    ///< its first pass can write gradients (plan/lower/write_first.h)
  const std::vector<plan::MatrixShape>* matrices = nullptr;  ///< of the tensors; owned by the layer's costs
  const plan::WholeMatrices* whole = nullptr;                ///< those updated as a whole; nullptr: none
};

/// A run of equal layers of a stage.
struct LayerRun {
  const LayerCosts* costs = nullptr;
  std::int64_t count = 1;
};

/// Buckets of a stage that train, in order; equal neighbours stand together.
[[nodiscard]] std::vector<BucketSize> buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec);
/// Those that do not (models/lora.h): their sizes alone.
[[nodiscard]] std::vector<BucketSize> frozen_buckets_of(const std::vector<LayerRun>& layers,
                                                        const plan::PlanSpec& spec);

/// `chunks`: the stage's layers in forward order, by virtual stage. `software`: bytes outside the arena, counted only
/// for MemoryKind::device.
[[nodiscard]] StageMemory stage_memory(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                                       int stage, std::int64_t micro_batches, double software,
                                       const MemoryRecipe& recipe = {}, MemoryQuestion question = {});

}  // namespace orrery::cost
