// Groups as strides over the mesh.
#include "plan/lower/groups.h"

#include <string>

#include "plan/lower/compress.h"
#include "plan/outline/factors.h"

namespace orrery::plan {

Groups make_groups(const PlanSpec& spec, bool tied, base::ById<GroupId, Group>& out) {
  const Group::Dimension tensor{1, spec.mesh.tensor}, context{spec.mesh.tensor, spec.mesh.context},
      data{spec.mesh.tensor, spec.mesh.replicas()}, pipeline{spec.mesh.ranks_per_stage(), spec.mesh.pipeline},
      shard{spec.mesh.tensor, spec.shards()}, sub_groups{spec.mesh.tensor * spec.shards(), spec.sub_groups()};
  // If the model is there twice: a stage and its mirror image.
  const Group::Dimension mirror{spec.stages.mirrors() ? spec.mesh.ranks_per_stage() : 1,
                                spec.stages.mirrors() ? spec.mesh.pipeline : 1, true};
  const bool partitions = spec.mesh.replicas() > 1 && spec.states.zero_stage > 0;
  const auto add = [&](std::string name, std::vector<Group::Dimension> dimensions, int limit = 0) {
    std::erase_if(dimensions, [](const Group::Dimension& d) { return d.size == 1; });
    if (dimensions.empty()) return GroupId();
    return out.append({std::move(name), std::move(dimensions), limit});
  };
  Groups groups;
  groups.tensor = add("tensor", {tensor});
  groups.context = add("context", {context});
  if (partitions) {
    groups.data = add(spec.sub_groups() > 1 ? "shard" : "data", {shard});
    groups.copies = add("replicate", {sub_groups, mirror});
  } else {
    groups.data = add("data", {data, mirror});
  }
  if (spec.mesh.folds_experts()) {
    const int stride = spec.mesh.expert_stride();
    groups.folds = true;
    if (spec.mesh.whole_experts()) groups.counts = groups.tensor;
    groups.expert = add("expert", {{stride, spec.mesh.expert}});
    const Group::Dimension alike{stride * spec.mesh.expert, spec.mesh.expert_shards()};
    groups.expert_data = partitions ? add("expert_data", {alike}) : add("expert_data", {alike, mirror});
  } else {
    groups.expert_data = groups.data;
  }
  if (spec.exchanges_by_node()) {
    groups.near = add("near", {{spec.mesh.tensor, spec.compression.group}});
    groups.far =
        add("far", {{spec.mesh.tensor * spec.compression.group, spec.mesh.replicas() / spec.compression.group}});
  }
  if (tied && spec.head_stage() > 0) {
    const int block = spec.mesh.ranks_per_stage();
    groups.embedding = add("embedding", {{block * (spec.mesh.pipeline - 1), 2}}, block);
  }
  if (spec.stages.asynchronous()) {  // agreement among all stages in every step would drain the pipeline
    groups.norm = spec.states.zero_stage == 0 ? groups.tensor : add("stage", {tensor, shard});
    groups.loss = spec.sub_groups() > 1 ? add("loss", {data}) : groups.data;
  } else {  // each sub-group computes the norm by itself
    groups.norm = spec.states.zero_stage == 0
                      ? add("model", {tensor, pipeline})
                      : add(spec.sub_groups() > 1 ? "states" : "world", {tensor, shard, pipeline});
    groups.loss = add("loss", {data, pipeline});
  }
  if (traits_of(spec.states.optimizer).whole_parameters() && spec.states.zero_stage > 0)
    groups.parts = spec.mesh.tensor > 1 && spec.mesh.replicas() > 1 ? add("parts", {tensor, shard})
                   : spec.mesh.tensor > 1                           ? groups.tensor
                                                                    : groups.data;
  return groups;
}

}  // namespace orrery::plan
