#pragma once
/// The points that a job allows on a cluster: what the search walks over.
#include <cstdint>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "models/model.h"
#include "plan/job.h"
#include "plan/plan.h"

namespace orrery::sim {

/// Divisors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// Every spec of the space, in a fixed order in which simpler plans (less ZeRO, no recomputation, smaller micro-batch)
/// come before others with the same mesh. Free degrees are the factorings of the cluster's size; a free micro-batch
/// divides the replica's share of the batch. Where a batch does not divide, one point stands for the mesh. `flash` and
/// `overlap_gradients`: what the software does where the job does not say.
[[nodiscard]] std::vector<plan::PlanSpec> space_of(const clusters::Cluster& cluster, const models::Model& model,
                                                   const plan::Job& job, bool flash, bool overlap_gradients = false);

}  // namespace orrery::sim
