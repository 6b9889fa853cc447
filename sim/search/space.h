#pragma once
/// The points that a job allows on a cluster: what the search walks over.
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
/// come before others with the same mesh. Free degrees are the factorings of the cluster's size; a free micro-batch
/// divides the replica's share of the batch. Where a batch does not divide, one point stands for the mesh. What a job
/// leaves open keeps within what the software can do (cost::Capabilities), and attends and overlaps as it does.
[[nodiscard]] std::vector<plan::PlanSpec> space_of(const clusters::Cluster& cluster, const models::Model& model,
                                                   const plan::Job& job, const cost::Stacks& stacks);

}  // namespace orrery::sim
