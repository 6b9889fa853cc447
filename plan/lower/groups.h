#pragma once
/// The groups of a mesh over which collectives run. Private to plan/.
#include <vector>

#include "plan/outline/outline.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A group with the id "none" is a group of one.
using PartGroups = ByOver<GroupId>;

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
