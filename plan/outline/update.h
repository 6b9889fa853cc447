#pragma once
/// How a stage's buckets are updated, and gathered under ZeRO 1 and 2. An optimizer that needs whole tensors (LAMB,
/// Adafactor) passes over all buckets several times: a round each, behind which ranks agree on what the round has
/// summed up. Muon's work on whole matrices is made of the pieces of all ranks that have any, bucket by bucket, so that
/// the directions of all ranks are there of one bucket alone.
#include "plan/outline/outline.h"

namespace orrery::plan {

/// What a stage's buckets amount to, as far as updates share memory.
struct StageTotals {
  std::int64_t parameters = 0;  ///< tensors; a pair of norms each
  FactorCount factors = {};
  std::int64_t workspace = 0;  ///< elements of Newton-Schulz for the largest matrix
  std::int64_t piece = 0;      ///< elements of the largest bucket's part that a node's rank gathers from the others
};
/// Counts `count` such buckets in.
void add_to(StageTotals& totals, const BucketShape& bucket, const PlanSpec& spec, std::int64_t count = 1);

[[nodiscard]] int update_rounds(const PlanSpec& spec);
/// Whether updates or gathers need memory beside states.
[[nodiscard]] bool updates_need_memory(const PlanSpec& spec);
/// A bucket's items of a round, the last of which updates and gathers it. `first`: the bucket is its stage's first,
/// which clears what they all add to.
[[nodiscard]] Outline update_of(const BucketShape& bucket, const StageTotals& totals, const PlanSpec& spec, int round,
                                bool first);
/// What follows behind a round over all buckets.
[[nodiscard]] Outline agreement_of(const StageTotals& totals, const PlanSpec& spec, int round);

}  // namespace orrery::plan
