#pragma once
/// The groups of a mesh over which collectives run. Private to plan/.
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// A group with the id "none" is a group of one.
struct Groups {
  GroupId tensor, context, embedding, norm, loss;
  bool folds = false;   ///< experts' parameters have other replicas than the other parameters
  GroupId expert;       ///< ranks that share a layer's experts
  GroupId expert_data;  ///< ranks with the same experts, as `data` is for other parameters
  GroupId counts;       ///< tensor ranks, each counting the choices of its own rows
  GroupId data;         ///< reduces gradients: all ranks that hold the same parameters, or ZeRO's sub-group
  GroupId copies;       ///< under ZeRO: ranks with the same shard, also of experts (folded ones have no sub-groups)
  GroupId near, far;    ///< 16-bit gradients: the replicas of a node; their counterparts on other nodes
  GroupId parts;        ///< ranks with parts of one parameter under ZeRO, if the optimizer needs them
  /// The group that reduces a bucket's gradients and gathers its shards.
  [[nodiscard]] GroupId data_of(const Bucket& bucket) const { return bucket.experts ? expert_data : data; }
};

/// Appends the groups of the mesh to `out`. `tied`: embedding and head share the token table.
[[nodiscard]] Groups make_groups(const PlanSpec& spec, bool tied, base::ById<GroupId, Group>& out);

}  // namespace orrery::plan
