#pragma once
/// How a stage's buckets are updated, and gathered under ZeRO 1 and 2. An optimizer that needs whole tensors (LAMB,
/// Adafactor) passes over all buckets several times, in rounds; after each round, ranks agree on what it has summed.
/// Muon's work on whole matrices needs the pieces of all ranks, and is done bucket by bucket, so that the directions of
/// all ranks are in memory for one bucket only.
#include "plan/outline/outline.h"

namespace orrery::plan {

/// Totals over buckets of optimizers that look at whole tensors.
struct TensorTotals {
  std::int64_t parameters = 0;  ///< tensors; a pair of norms each
  FactorCount factors = {};
};
/// Totals over a stage's buckets that size the memory which their updates share.
struct StageTotals {
  TensorTotals all;
  TensorTotals apart;          ///< of these, those of experts, where other ranks hold experts than the rest
  std::int64_t workspace = 0;  ///< elements of Newton-Schulz for the largest matrix
  std::int64_t piece = 0;      ///< elements of the largest bucket's part that a node's rank gathers from others
};
/// Counts `count` such buckets in.
void add_to(StageTotals& totals, const BucketShape& bucket, const PlanSpec& spec, std::int64_t count = 1);

[[nodiscard]] int update_rounds(const PlanSpec& spec);
/// Whether updates or gathers need memory beside states.
[[nodiscard]] bool updates_need_memory(const PlanSpec& spec);
/// A bucket's items in a round; the last round updates and gathers it. `first`: the bucket is the stage's first, which
/// clears the sums to which all buckets add.
[[nodiscard]] Outline update_of(const BucketShape& bucket, const StageTotals& totals, const PlanSpec& spec, int round,
                                bool first);
/// What follows after a round over all buckets.
[[nodiscard]] Outline agreement_of(const StageTotals& totals, const PlanSpec& spec, int round);

}  // namespace orrery::plan
