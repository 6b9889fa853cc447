// Groups as strides over the mesh.
#include "plan/lower/groups.h"

#include <string>

#include "plan/lower/compress.h"
#include "plan/outline/factors.h"

namespace orrery::plan {

namespace {

/// Where one kind of parameters is, as dimensions of the mesh.
struct Dimensions {
  Group::Dimension tensor, all, shard, sub_groups, near, far;
  explicit Dimensions(const Holders& h)
      : tensor{1, h.ways},
        all{h.stride, h.count},
        shard{h.stride, h.shards},
        sub_groups{h.stride * h.shards, h.sub_groups()},
        near{h.stride, h.near},
        far{h.stride * h.near, h.count / h.near} {}
};

}  // namespace

Groups make_groups(const PlanSpec& spec, bool tied, base::ById<GroupId, Group>& out) {
  const Dimensions most(spec.holders(false)), experts(spec.holders(true));
  const Group::Dimension context{spec.mesh.tensor, spec.mesh.context},
      pipeline{spec.mesh.ranks_per_stage(), spec.mesh.pipeline};
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
  groups.tensor = add("tensor", {most.tensor});
  groups.context = add("context", {context});
  const auto reducing = [&](PartGroups& to, const Dimensions& of, const std::string& data, const std::string& copies) {
    to.data = partitions ? add(data, {of.shard}) : add(data, {of.all, mirror});
    if (partitions) to.copies = add(copies, {of.sub_groups, mirror});
  };
  reducing(groups, most, partitions && spec.sub_groups() > 1 ? "shard" : "data", "replicate");
  groups.folds = spec.mesh.folds_experts();
  if (groups.folds) {
    if (spec.mesh.routes_own_rows()) groups.counts = groups.tensor;
    groups.expert = add("expert", {{spec.mesh.expert_ways(), spec.mesh.expert}});
    groups.of_experts.tensor = spec.mesh.routes_own_rows() ? add("expert_tensor", {experts.tensor}) : groups.tensor;
    reducing(groups.of_experts, experts, "expert_data", "expert_replicate");
  }
  if (spec.exchanges_by_node()) {
    const auto by_node = [&](PartGroups& to, const Dimensions& of, const std::string& kind) {
      to.near = add(kind + "near", {of.near});
      to.far = add(kind + "far", {of.far});
    };
    by_node(groups, most, "");
    if (groups.folds) by_node(groups.of_experts, experts, "expert_");
  }
  if (tied && spec.head_stage() != kFirstStage) {
    const int block = spec.mesh.ranks_per_stage();
    groups.embedding = add("embedding", {{block * (spec.mesh.pipeline - 1), 2}}, block);
  }
  if (spec.stages.asynchronous()) {  // agreement among all stages in every step would drain the pipeline
    groups.norm = spec.states.zero_stage == 0 ? groups.tensor : add("stage", {most.tensor, most.shard});
    groups.loss = spec.sub_groups() > 1 ? add("loss", {most.all}) : groups.data;
  } else {  // each sub-group computes the norm by itself
    groups.norm = spec.states.zero_stage == 0
                      ? add("model", {most.tensor, pipeline})
                      : add(spec.sub_groups() > 1 ? "states" : "world", {most.tensor, most.shard, pipeline});
    groups.loss = add("loss", {most.all, pipeline});
  }
  // Without ZeRO only tensor ranks have parts of a parameter.
  const auto parts = [&](PartGroups& of, const Dimensions& d, const std::string& name) {
    const bool whole = traits_of(spec.states.optimizer).whole_parameters() && partitions;
    of.parts = !whole || d.shard.size == 1 ? of.tensor : d.tensor.size == 1 ? of.data : add(name, {d.tensor, d.shard});
  };
  parts(groups, most, "parts");
  if (groups.folds) parts(groups.of_experts, experts, "expert_parts");
  return groups;
}

}  // namespace orrery::plan
