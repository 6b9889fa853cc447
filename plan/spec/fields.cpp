// Checked by the compiler: every member of a PlanSpec is named here, and there are as many fields.
#include "plan/spec/fields.h"

namespace orrery::plan {
namespace {

// A new member does not compile until it is named here; then it needs a row in plan/spec/fields.h.
[[maybe_unused]] void every_member_is_a_field(const PlanSpec& spec) {
  const auto& [data, tensor, pipeline, context, expert, virtual_stages, layers_per_stage, ends_as_layers, micro_batch,
               order, passes, zero_stage, zero_group, recompute, recompute_layers, partition_checkpoints,
               sequence_parallel, flash, offload, overlap_gradients, compression, vocab_multiple, batch, sequence,
               precision, optimizer, momentum, rounding, staleness, loss_chunks, embedding, expert_tensor, expert_bound,
               expert_imbalance, tokens] = spec;
  const auto& [activations, optimizer_states, parameters, prefetch] = offload;
  const auto& [gradients, encoding, rank, minimum_rate, capacity, group, start] = compression;
  const auto& [sharding, placement, pooled_forward, pooled_backward, tiers, stored, skew] = embedding;
  const auto& [dispatch, combine] = tokens;
  const auto members =
      std::tie(data, tensor, pipeline, context, expert, virtual_stages, layers_per_stage, ends_as_layers, micro_batch,
               order, passes, zero_stage, zero_group, recompute, recompute_layers, partition_checkpoints,
               sequence_parallel, flash, activations, optimizer_states, parameters, prefetch, overlap_gradients,
               gradients, encoding, rank, minimum_rate, capacity, group, start, vocab_multiple, batch, sequence,
               precision, optimizer, momentum, rounding, staleness, loss_chunks, sharding, placement, pooled_forward,
               pooled_backward, tiers, stored, skew, expert_tensor, expert_bound, expert_imbalance, dispatch, combine);
  static_assert(std::tuple_size_v<decltype(members)> == std::tuple_size_v<decltype(kFields)>);
}

}  // namespace
}  // namespace orrery::plan
