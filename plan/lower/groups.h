#pragma once
/// The groups of a mesh over which collectives run. Private to plan/.
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Indices into Schedule::groups; -1: a group of one.
struct Groups {
  int tensor = -1, context = -1, embedding = -1, norm = -1, loss = -1;
  bool folds = false;       ///< experts' parameters have other replicas than the rest
  int expert = -1;          ///< ranks that share a layer's experts
  int expert_data = -1;     ///< ranks with the same experts, as `data` is for other parameters
  int counts = -1;          ///< tensor ranks, each counting the choices of its own rows
  int data = -1;            ///< reduces gradients: all that hold the parameters, or ZeRO's sub-group
  int copies = -1;          ///< under ZeRO: ranks with the same shard
  int near = -1, far = -1;  ///< 16-bit gradients: the replicas of a node; their counterparts on other nodes
  int parts = -1;           ///< ranks with parts of one parameter under ZeRO, if the optimizer needs them
  /// The group that reduces a bucket's gradients and gathers its shards.
  [[nodiscard]] int data_of(const Bucket& bucket) const { return bucket.experts ? expert_data : data; }
  [[nodiscard]] int copies_of(const Bucket& bucket) const { return bucket.experts && folds ? -1 : copies; }
};

/// Appends the groups of the mesh to `out`. `tied`: embedding and head share the token table.
[[nodiscard]] Groups make_groups(const PlanSpec& spec, bool tied, std::vector<Group>& out);

}  // namespace orrery::plan
