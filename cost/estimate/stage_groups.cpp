/// Groups of the mesh, from their strides.
#include "cost/estimate/stage_groups.h"

namespace orrery::cost {

namespace {

/// Ranks of rank 0's group over all stages and over some ranks of each.
std::vector<int> over_stages(const plan::PlanSpec& spec, int tensor, int replicas) {
  std::vector<int> out;
  for (int s = 0; s < (spec.stages.asynchronous() ? 1 : spec.mesh.pipeline);
       ++s)  // asynchronous stages agree on nothing
    for (int d = 0; d < replicas; ++d)
      for (int t = 0; t < tensor; ++t) out.push_back((s * spec.mesh.replicas() + d) * spec.mesh.tensor + t);
  return out;
}

/// Adds the ranks that hold the same on the mirrored stage, if the model exists twice.
std::vector<int> with_mirrored(std::vector<int> ranks, const plan::PlanSpec& spec, plan::StageId stage) {
  if (!spec.stages.mirrors()) return ranks;
  const int away = (spec.mesh.pipeline - 1 - 2 * stage.number()) * spec.mesh.ranks_per_stage();
  for (std::size_t i = 0, n = ranks.size(); i < n; ++i) ranks.push_back(ranks[i] + away);
  return ranks;
}

}  // namespace

std::vector<int> strided(int first, int stride, int size) {
  std::vector<int> out;
  for (int i = 0; i < size; ++i) out.push_back(first + i * stride);
  return out;
}

StageGroups stage_groups(const plan::Plan& plan, plan::StageId stage) {
  const plan::PlanSpec& spec = plan.spec();
  const int first = plan.rank(stage, 0, 0);
  const bool parts = partitions(spec);
  const auto members = [&](bool experts) {
    const plan::Holders h = spec.holders(experts);
    PartMembers out;
    out.tensor = strided(first, 1, h.ways);
    // What is not partitioned is reduced over all that hold it, also on the mirrored stage.
    out.data =
        parts ? strided(first, h.stride, h.shards) : with_mirrored(strided(first, h.stride, h.count), spec, stage);
    if (parts) out.copies = with_mirrored(strided(first, h.stride * h.shards, h.sub_groups()), spec, stage);
    if (h.near > 1) {
      out.near = strided(first, h.stride, h.near);
      out.far = strided(first, h.stride * h.near, h.count / h.near);
    }
    for (const int one : strided(first, h.stride, parts ? h.shards : 1))
      for (int way = 0; way < h.ways; ++way) out.parts.push_back(one + way);
    return out;
  };
  StageGroups out;
  static_cast<PartMembers&>(out) = members(false);
  if (spec.mesh.folds_experts()) out.of_experts = members(true);
  out.experts = strided(first, spec.mesh.expert_ways(), spec.mesh.expert);
  out.precision = spec.numerics.precision;
  return out;
}

std::vector<int> norm_members(const plan::PlanSpec& spec) {
  return over_stages(spec, spec.mesh.tensor, partitions(spec) ? spec.shards() : 1);
}
std::vector<int> loss_members(const plan::PlanSpec& spec) {
  return over_stages(spec, 1, spec.mesh.replicas());
}

}  // namespace orrery::cost
