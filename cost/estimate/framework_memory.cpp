/// Recipes of frameworks' memory.
#include "cost/estimate/framework_memory.h"

#include <algorithm>

#include "plan/lower/buckets.h"
#include "plan/outline/outline.h"

namespace orrery::cost {

bool counts_software(MemoryKind kind) {
  return kind == MemoryKind::device || kind == MemoryKind::needed;
}

void add_framework(StageMemory& m, const Elements& elements, const plan::PlanSpec& spec, const MemoryRecipe& recipe,
                   MemoryKind kind, double in_flight) {
  const models::DType compute = plan::expand_options(spec).dtype,
                      gradient = plan::gradient_dtype(spec.numerics.precision);
  const bool beside = recipe.gradients_beside && gradient != compute && spec.states.zero_stage < 3;
  if (beside) m.gradients += elements.all * static_cast<double>(models::size_of(compute));
  double bucket = 0;
  if (spec.mesh.replicas() > 1 && recipe.reduce_bucket > 0) {
    bucket = std::min(elements.all, static_cast<double>(recipe.reduce_bucket));
    if (beside) bucket = std::max(bucket, elements.largest);
    bucket *= std::min(recipe.gradient_bytes, static_cast<double>(models::size_of(gradient)));
  }
  const double per_parameter = compute == models::DType::fp16   ? recipe.update_fp16
                               : compute == models::DType::bf16 ? recipe.update_bf16
                                                                : 0;
  const double update = elements.optimized * per_parameter, passes = m.activations + m.workspace;
  if (kind == MemoryKind::allocated) {
    m.communication = std::max(0.0, update + bucket - passes);
  } else {
    m.communication = bucket + (recipe.update_in_one_piece ? update : std::max(0.0, update - passes));
  }
  const double lost = kind == MemoryKind::needed ? recipe.stuck : recipe.fragmentation;
  const double between = recipe.pipeline_fragmentation * m.activations * (1 - 1 / std::max(1.0, in_flight));
  if (kind != MemoryKind::allocated) m.fragmentation += lost * passes + between;
}

}  // namespace orrery::cost
