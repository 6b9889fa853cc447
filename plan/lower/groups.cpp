// Groups as strides over the mesh.
#include "plan/lower/groups.h"

#include <string>

#include "plan/lower/compress.h"
#include "plan/outline/factors.h"

namespace orrery::plan {

Groups make_groups(const PlanSpec& spec, bool tied, base::ById<GroupId, Group>& out) {
  const Group::Dimension tensor{1, spec.tensor}, context{spec.tensor, spec.context}, data{spec.tensor, spec.replicas()},
      pipeline{spec.ranks_per_stage(), spec.pipeline}, shard{spec.tensor, spec.shards()},
      sub_groups{spec.tensor * spec.shards(), spec.sub_groups()};
  // If the model is there twice: a stage and its mirror image.
  const Group::Dimension mirror{spec.mirrors() ? spec.ranks_per_stage() : 1, spec.mirrors() ? spec.pipeline : 1, true};
  const bool partitions = spec.replicas() > 1 && spec.zero_stage > 0;
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
  if (spec.folds_experts()) {
    const int stride = spec.expert_stride();
    groups.folds = true;
    if (spec.whole_experts()) groups.counts = groups.tensor;
    groups.expert = add("expert", {{stride, spec.expert}});
    groups.expert_data = add("expert_data", {{stride * spec.expert, spec.expert_shards()}});
  } else {
    groups.expert_data = groups.data;
  }
  if (spec.exchanges_by_node()) {
    groups.near = add("near", {{spec.tensor, spec.compression.group}});
    groups.far = add("far", {{spec.tensor * spec.compression.group, spec.replicas() / spec.compression.group}});
  }
  if (tied && spec.head_stage() > 0) {
    const int block = spec.ranks_per_stage();
    groups.embedding = add("embedding", {{block * (spec.pipeline - 1), 2}}, block);
  }
  if (spec.asynchronous()) {  // agreement among all stages in every step would drain the pipeline
    groups.norm = spec.zero_stage == 0 ? groups.tensor : add("stage", {tensor, shard});
    groups.loss = spec.sub_groups() > 1 ? add("loss", {data}) : groups.data;
  } else {  // each sub-group computes the norm by itself
    groups.norm = spec.zero_stage == 0 ? add("model", {tensor, pipeline})
                                       : add(spec.sub_groups() > 1 ? "states" : "world", {tensor, shard, pipeline});
    groups.loss = add("loss", {data, pipeline});
  }
  const OptimizerTraits& optimizer = traits_of(spec.optimizer);
  if ((optimizer.whole_tensors || optimizer.whole_matrices) && spec.zero_stage > 0)
    groups.parts = spec.tensor > 1 && spec.replicas() > 1 ? add("parts", {tensor, shard})
                   : spec.tensor > 1                      ? groups.tensor
                                                          : groups.data;
  return groups;
}

}  // namespace orrery::plan
