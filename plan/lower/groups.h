#pragma once
/// The groups of a mesh over which collectives run. Private to plan/.
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// The ranks over which what holds one kind of parameters is summed and gathered (PlanSpec::holders). A group with the
/// id "none" is a group of one.
struct PartGroups {
  GroupId tensor;     ///< ranks with parts of the same matrices
  GroupId data;       ///< reduces gradients: all ranks that hold the same parameters, or ZeRO's sub-group
  GroupId copies;     ///< under ZeRO: ranks with the same shard
  GroupId near, far;  ///< 16-bit gradients: the ranks of a node that hold the same; their counterparts on other nodes
  GroupId parts;      ///< ranks with parts of one parameter, if the optimizer needs them
};

/// Those of most parameters, and others.
struct Groups : PartGroups {
  GroupId context, embedding, norm, loss;
  bool folds = false;     ///< experts' parameters have other replicas than the other parameters
  GroupId expert;         ///< ranks that share a layer's experts
  PartGroups of_experts;  ///< where they are folded
  GroupId counts;         ///< tensor ranks, each counting the choices of its own rows
  [[nodiscard]] const PartGroups& of(bool experts) const { return experts && folds ? of_experts : *this; }
};

/// Appends the groups of the mesh to `out`. `tied`: embedding and head share the token table.
[[nodiscard]] Groups make_groups(const PlanSpec& spec, bool tied, base::ById<GroupId, Group>& out);

}  // namespace orrery::plan
