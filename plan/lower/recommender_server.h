#pragma once
/// Recommendation models with a parameter server (plan/lower/parameter_server.h), as on Zion (Acun et al. 2021, HPCA,
/// section 2; Mudigere et al. 2022, ISCA, section 2). Private to plan/.
///
/// MLPs and replicated tables are buckets, pushed, updated and pulled as those of other models are. Of a sharded table
/// its server is who holds its rows: pooled vectors are pulled, their gradients pushed, and each worker's gradient is
/// an update of its own. Rows move under rings that nobody keeps of them, for lookups need none: in step t those of
/// step t + s come before the update of step t, of rows that all updates up to step t - 1 have made, s steps older than
/// t + s. What waits for its update is what was looked up, s + 1 steps of it, and the gradients, s steps of them.
/// In step t, in this order: gradients of step t are pushed while step t + s is looked up and computed forward; tables
/// and MLPs are updated; MLPs are pulled while step t + s is computed backward.
#include <functional>
#include <vector>

#include "plan/lower/recommender_finish.h"

namespace orrery::plan {

/// What a pass leaves for its update, s steps later: none where there is nothing.
struct LeftForUpdates {
  std::vector<BufferId> looked_up;  ///< written in the forward pass
  std::vector<BufferId> gradients;  ///< written in the backward pass
};
/// Elements to a multiple of which the bucket of replicated tables is padded: shards have whole rows.
[[nodiscard]] std::int64_t server_alignment(const PlanSpec& spec, std::int64_t embedding_dim);

/// Block "push": squares of a worker's own gradients; then `tables`, which pushes gradients of sharded tables; then the
/// buckets'. Returns the buffer that receives lookups of replicated tables, if there are any.
BufferId lower_push(const RecommenderEnd& end, const std::function<void()>& tables);
/// The rest of block "finish", behind the updates of sharded tables. Makes rings of what was `left`.
void lower_served(const RecommenderEnd& end, BufferId received_lookups, const LeftForUpdates& left);

/// A copy of what the ring `buffer` has of this step, which a message may read while a later step's is written.
[[nodiscard]] BufferId copied(ClassBuilder& build, BufferId buffer);

/// Adds an operator for each worker, of its samples alone; of one worker as it is. Buffers in `parts` have a part for
/// each of them.
void add_turns(ClassBuilder& build, const models::Op& op, int workers, const std::vector<BufferId>& parts,
               std::vector<models::Op>& ops);

}  // namespace orrery::plan
