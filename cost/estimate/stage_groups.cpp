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
std::vector<int> with_mirrored(std::vector<int> ranks, const plan::PlanSpec& spec, int stage) {
  if (!spec.stages.mirrors()) return ranks;
  const int away = (spec.mesh.pipeline - 1 - 2 * stage) * spec.mesh.ranks_per_stage();
  for (std::size_t i = 0, n = ranks.size(); i < n; ++i) ranks.push_back(ranks[i] + away);
  return ranks;
}

}  // namespace

std::vector<int> strided(int first, int stride, int size) {
  std::vector<int> out;
  for (int i = 0; i < size; ++i) out.push_back(first + i * stride);
  return out;
}

StageGroups stage_groups(const plan::Plan& plan, int stage) {
  const plan::PlanSpec& spec = plan.spec();
  const int first = plan.rank(stage, 0, 0);
  StageGroups out;
  out.precision = spec.numerics.precision;
  out.tensor = strided(first, 1, spec.mesh.tensor);
  const int stride = spec.mesh.expert_stride();
  out.experts = strided(first, stride, spec.mesh.expert);
  if (spec.exchanges_by_node()) {
    const int group = spec.compression.group;
    out.near = strided(first, spec.mesh.tensor, group);
    out.far = strided(first, spec.mesh.tensor * group, spec.mesh.replicas() / group);
  }
  // What is not partitioned is reduced over all that hold it, also on the mirrored stage.
  const bool parts = partitions(spec);
  const auto reducing = [&](std::vector<int> ranks) { return parts ? ranks : with_mirrored(ranks, spec, stage); };
  out.data = reducing(strided(first, spec.mesh.tensor, spec.shards()));
  out.expert_data = spec.mesh.folds_experts()
                        ? reducing(strided(first, stride * spec.mesh.expert, spec.mesh.expert_shards()))
                        : out.data;
  if (parts)
    out.copies = with_mirrored(strided(first, spec.mesh.tensor * spec.shards(), spec.sub_groups()), spec, stage);
  out.parts = parts ? strided(first, 1, spec.mesh.tensor * spec.shards()) : out.tensor;
  return out;
}

std::vector<int> norm_members(const plan::PlanSpec& spec) {
  return over_stages(spec, spec.mesh.tensor, partitions(spec) ? spec.shards() : 1);
}
std::vector<int> loss_members(const plan::PlanSpec& spec) {
  return over_stages(spec, 1, spec.mesh.replicas());
}

}  // namespace orrery::cost
