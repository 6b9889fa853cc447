// States of optimizers, and of PowerSGD.
#include "plan/outline/outline.h"

namespace orrery::plan {

using models::DType;

Slot state_of(Memory memory, const BucketShape& b, const PlanSpec& spec) {
  const std::int64_t optimized = optimized_of(b, spec);
  const OptimizerTraits& optimizer = traits_of(spec.states.optimizer);
  const bool bytes = optimizer.quantised() && !b.embedding;
  const DType moment = optimizer.quantised() && b.embedding ? DType::fp32 : optimizer.moments_in;
  const auto state = [&](const char* name, DType dtype, std::int64_t elements) {
    return Slot{memory, name, Purpose::optimizer_states, dtype, elements};
  };
  const auto low_rank = [&] {
    return approximates(b.experts, spec) ? low_rank_sizes(b.matrices, spec.compression) : LowRankSizes{};
  };
  if (memory == Memory::master) return state("master", DType::fp32, has_master(spec) ? optimized : 0);
  if (memory == Memory::first_moment) return state("first_moment", moment, spec.states.moments() > 0 ? optimized : 0);
  if (memory == Memory::second_moment) {
    const std::int64_t all = b.whole == nullptr ? optimized : second_moment_elements(*b.whole, optimized);
    return state("second_moment", moment, spec.states.moments() > 1 ? all : 0);
  }
  const std::int64_t scales = bytes ? optimized / models::kQuantisedBlock : 0;
  if (memory == Memory::first_scale) return state("first_scale", DType::fp32, scales);
  if (memory == Memory::second_scale) return state("second_scale", DType::fp32, scales);
  if (memory == Memory::error) return state("error", DType::fp32, low_rank().error);
  if (memory == Memory::low_rank_q) return state("low_rank_q", DType::fp32, low_rank().q);
  return state("", DType::fp32, 0);
}

std::vector<Slot> states_of(const BucketShape& bucket, const PlanSpec& spec) {
  std::vector<Slot> states;
  for (const Memory memory : kStates)
    if (const Slot state = state_of(memory, bucket, spec); state.elements > 0) states.push_back(state);
  return states;
}

}  // namespace orrery::plan
