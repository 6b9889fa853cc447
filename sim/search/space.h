#pragma once
/// The points that a job allows on a cluster: the space of the search.
#include <cstdint>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "cost/prices/stacks.h"
#include "models/model.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// Divisors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// Every spec of the space, in a fixed order in which simpler plans (less ZeRO, no recomputation, smaller micro-batch)
/// come before others with the same mesh. Free degrees take the factorings of the cluster's size; a free micro-batch
/// divides the replica's share of the batch. If a batch is not divisible, one point represents the mesh. What a job
/// leaves open stays within the software's capabilities (cost::Capabilities), and uses its attention and overlap.
[[nodiscard]] std::vector<plan::PlanSpec> space_of(const clusters::Cluster& cluster, const models::Model& model,
                                                   const plan::Job& job, const cost::Stacks& stacks);

}  // namespace orrery::sim
