#pragma once
/// Which parameters a pipeline stage holds, laid out in flat buckets: one per layer, one for a tied token table.
#include <memory>
#include <vector>

#include "models/layers/expand.h"
#include "plan/outline/factors.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

struct StageLayer {
  models::LayerKind kind{};
  LayerId layer = {};  ///< of a block
  int chunk = 0;
  Repeats repeats = {};  ///< in backward
  std::shared_ptr<const models::LayerProgram> program;
  base::ById<models::TensorId, BucketId> bucket = {};      ///< of parameters and gradients; else none
  base::ById<models::TensorId, std::int64_t> offset = {};  ///< elements into the bucket
  std::vector<BucketId> buckets = {};                      ///< buckets that this layer uses, each once
};

struct StageParameters {
  std::vector<StageLayer> layers;        ///< in forward order
  base::ById<BucketId, Bucket> buckets;  ///< sizes and ranges; buffers not assigned yet
  BucketId shared;                       ///< bucket of the tied token table, if the stage has it
  FactorLayout factors;                  ///< of optimizers that look at whole tensors
};

struct SomeLayers;    // plan/lower/lower.h
struct LowerOptions;  // the same
/// Those of a training step; `some`: only these layers; null: all.
[[nodiscard]] StageParameters stage_parameters(const Plan& plan, StageId stage);
[[nodiscard]] StageParameters stage_parameters(const Plan& plan, StageId stage, const LowerOptions& options,
                                               const SomeLayers* some = nullptr);
[[nodiscard]] models::ExpandOptions expand_options(const PlanSpec& spec);

}  // namespace orrery::plan
