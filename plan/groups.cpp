// Groups as strides of the mesh.
#include "plan/groups.h"

#include <string>

#include "plan/factors.h"

namespace orrery::plan {

Groups make_groups(const PlanSpec& spec, bool tied, std::vector<Group>& out) {
  const Group::Dimension tensor{1, spec.tensor}, context{spec.tensor, spec.context}, data{spec.tensor, spec.replicas()},
      pipeline{spec.ranks_per_stage(), spec.pipeline};
  const auto add = [&](std::string name, std::vector<Group::Dimension> dimensions, int limit = 0) {
    std::erase_if(dimensions, [](const Group::Dimension& d) { return d.size == 1; });
    if (dimensions.empty()) return -1;
    out.push_back({std::move(name), std::move(dimensions), limit});
    return static_cast<int>(out.size()) - 1;
  };
  Groups groups;
  groups.tensor = add("tensor", {tensor});
  groups.context = add("context", {context});
  groups.data = add("data", {data});
  if (tied && spec.head_stage() > 0) {
    const int block = spec.ranks_per_stage();
    groups.embedding = add("embedding", {{block * (spec.pipeline - 1), 2}}, block);
  }
  if (spec.asynchronous()) {  // what all stages agree on in every step would drain the pipeline
    groups.norm = spec.zero_stage == 0 ? groups.tensor : add("stage", {tensor, data});
    groups.loss = groups.data;
    return groups;
  }
  groups.norm = spec.zero_stage == 0 ? add("model", {tensor, pipeline}) : add("world", {tensor, data, pipeline});
  groups.loss = add("loss", {data, pipeline});
  if (looks_at_tensors(spec.optimizer) && spec.zero_stage > 0)
    groups.parts = spec.tensor > 1 && spec.replicas() > 1 ? add("parts", {tensor, data})
                   : spec.tensor > 1                      ? groups.tensor
                                                          : groups.data;
  return groups;
}

}  // namespace orrery::plan
