#pragma once
/// Recommendation models with a parameter server (plan/lower/parameter_server.h), as on Zion (Acun et al. 2021, HPCA,
/// section 2; Mudigere et al. 2022, ISCA, section 2). Private to plan/.
///
/// MLPs and replicated tables are buckets, which are pushed, updated and pulled as in other models. The server of a
/// sharded table is the rank that holds its rows: pooled vectors are pulled from it, their gradients are pushed to it,
/// and each worker's gradient is applied as a separate update. Rows need no ring of versions. The lookups of step t + s
/// run in step t, before its update, so they read rows with all updates up to step t - 1, which are s steps older than
/// step t + s. What was looked up (s + 1 steps of it) and the gradients (s steps) are kept until their update. In step
/// t, in this order: gradients of step t are pushed while the lookups and the forward pass of step t + s run; tables
/// and MLPs are updated; MLPs are pulled while the backward pass of step t + s runs.
#include <functional>
#include <vector>

#include "plan/lower/recommender_finish.h"

namespace orrery::plan {

/// What a pass keeps for its update, s steps later; none where there is nothing.
struct LeftForUpdates {
  std::vector<BufferId> looked_up;  ///< written in the forward pass
  std::vector<BufferId> gradients;  ///< written in the backward pass
};
/// The bucket of replicated tables is padded to a multiple of this many elements, so that shards have whole rows.
[[nodiscard]] std::int64_t server_alignment(const PlanSpec& spec, std::int64_t embedding_dim);

/// Block "push": the squares of a worker's own gradients; then `tables`, which pushes the gradients of sharded tables;
/// then the gradients of buckets. Returns the buffer that receives the lookups of replicated tables, if there are any.
BufferId lower_push(const RecommenderEnd& end, const std::function<void()>& tables);
/// The rest of block "finish", after the updates of sharded tables. Makes the buffers in `left` rings.
void lower_served(const RecommenderEnd& end, BufferId received_lookups, const LeftForUpdates& left);

/// A copy of this step's slot of the ring `buffer`. A message may read it while a later step's slot is written.
[[nodiscard]] BufferId copied(ClassBuilder& build, BufferId buffer);

/// Adds one operator for each worker, over that worker's samples only; with one worker, the operator as it is. Buffers
/// in `parts` have one part for each worker.
void add_turns(ClassBuilder& build, const models::Op& op, int workers, const std::vector<BufferId>& parts,
               std::vector<models::Op>& ops);

}  // namespace orrery::plan
