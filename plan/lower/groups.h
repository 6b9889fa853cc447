#pragma once
/// The groups of a mesh that collectives run over. Private to plan/.
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Indices into Schedule::groups; -1: a group of one.
struct Groups {
  int tensor = -1, context = -1, embedding = -1, norm = -1, loss = -1;
  bool folds = false;       ///< experts' parameters have other replicas than the rest
  int expert = -1;          ///< ranks that divide a layer's experts
  int expert_data = -1;     ///< and those that hold the same of them, as `data` does of other parameters
  int counts = -1;          ///< tensor ranks that each count the choices of their own rows
  int data = -1;            ///< over which gradients are reduced: all that hold the parameters, or ZeRO's sub-group
  int copies = -1;          ///< under ZeRO: the ranks that hold the same shard
  int near = -1, far = -1;  ///< gradients in 16 bits: the replicas of a node, and their equals on other nodes
  int parts = -1;           ///< the ranks that have parts of one parameter under ZeRO, if the optimizer asks
  /// Over which a bucket's gradients are reduced, and its shards gathered.
  [[nodiscard]] int data_of(const Bucket& bucket) const { return bucket.experts ? expert_data : data; }
  [[nodiscard]] int copies_of(const Bucket& bucket) const { return bucket.experts && folds ? -1 : copies; }
};

/// Appends the groups of the mesh to `out`. `tied`: embedding and head share the token table.
[[nodiscard]] Groups make_groups(const PlanSpec& spec, bool tied, std::vector<Group>& out);

}  // namespace orrery::plan
