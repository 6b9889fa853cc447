// Rounds of updates over a stage's buckets.
#include "plan/lower/lower_optimizer.h"

#include <list>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/lower/write_outline.h"
#include "plan/outline/update.h"

namespace orrery::plan {

using base::at;

void add_states(ClassBuilder& build, const PlanSpec& spec, Bucket& bucket, std::int64_t optimized) {
  const ShapeOf shape(bucket, spec);
  ENSURE(optimized == optimized_of(*shape, spec), "bucket {}: {} elements optimized", bucket.name, optimized);
  for (const Slot& state : states_of(*shape, spec))
    field_of(bucket, state.memory) =
        build.buffer(bucket.name + "." + state.name, state.purpose, state.dtype, state.elements, true);
  if (approximates(bucket.experts, spec)) place_low_rank(bucket, spec.compression);
}

View optimized_gradient(const ClassBuilder& build, const Bucket& b, int zero) {
  if (zero >= 2) return build.whole(b.gradient_shard);
  if (zero == 1) return {b.gradients, 0, b.shard_elements(), b.dealt()};
  return build.whole(b.gradients);
}

namespace {

struct Round {
  std::vector<Outline> buckets;
  Outline agreement;
};

std::vector<Round> rounds_of(const std::list<ShapeOf>& shapes, const PlanSpec& spec) {
  StageTotals totals;
  for (const ShapeOf& shape : shapes) add_to(totals, *shape, spec);
  std::vector<Round> rounds(at(update_rounds(spec)));
  for (int r = 0; r < static_cast<int>(rounds.size()); ++r) {
    for (const ShapeOf& shape : shapes)
      rounds[at(r)].buckets.push_back(update_of(*shape, totals, spec, r, &shape == &shapes.front()));
    rounds[at(r)].agreement = agreement_of(totals, spec, r);
  }
  return rounds;
}

const Slot* slot_of(const std::vector<Round>& rounds, Memory memory) {
  for (const Round& round : rounds)
    for (const Outline& outline : round.buckets)
      for (const Slot& slot : outline.slots)
        if (slot.memory == memory) return &slot;
  return nullptr;
}

}  // namespace

void lower_update(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, BufferId coefficient,
                  BucketId except) {
  std::vector<BucketId> buckets;
  std::list<ShapeOf> shapes;
  for (const BucketId b : build.result().buckets.keys()) {
    if (build.bucket(b).frozen || b == except) continue;
    buckets.push_back(b);
    shapes.emplace_back(build.bucket(b), spec);
  }
  const std::vector<Round> rounds = rounds_of(shapes, spec);
  BuffersByMemory shared;
  shared[static_cast<std::size_t>(Memory::coefficient)] = coefficient;
  shared[static_cast<std::size_t>(Memory::scaling)] = build.result().scaling;
  shared[static_cast<std::size_t>(Memory::factors)] = build.result().factors;
  for (const Memory memory : kStageTemporaries)
    if (const Slot* slot = slot_of(rounds, memory))
      shared[static_cast<std::size_t>(memory)] = build.buffer(slot->name, slot->purpose, slot->dtype, slot->elements);
  for (const Round& round : rounds) {
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      OutlinedBucket bucket = outlined(build, buckets[i]);
      for (std::size_t m = static_cast<std::size_t>(Memory::norm_squared); m < kMemories; ++m)
        bucket.buffers[m] = shared[m];
      write_outline(build, groups, round.buckets[i], bucket);
    }
    write_outline(build, groups, round.agreement, {.buffers = shared});
  }
}

}  // namespace orrery::plan
