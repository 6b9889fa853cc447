// Turns of replicas: whose gradients are made together, and when they are taken.
#include "plan/lower/serial_turns.h"

#include <algorithm>

#include "base/index.h"

namespace orrery::plan {

using base::at;
using models::DType;
using models::Op;

ReplicaTurns::ReplicaTurns(SerialStep& to, const Plan& split, BucketId shared, bool apart)
    : to_(to), split_(split), workers_(split.spec().mesh.data) {
  make_own(shared, apart);
  redirect(shared, apart);
  for (const OwnGradients& one : own_) {
    if (std::any_of(turns_.begin(), turns_.end(), [&](const Turn& t) { return t.together == one.together; })) continue;
    Turn turn{turns_.empty() ? "" : ".experts", one.together};
    std::vector<Op> zeros;
    each(turn, [&](const OwnGradients& same, std::size_t) { zeros.push_back(to_.build.zero_of(same.gradients)); });
    turn.zero = to_.block_of("turn" + turn.of, Phase::optimizer, std::move(zeros));
    turns_.push_back(std::move(turn));
  }
}

// A node's replicas may sum first; a rank's experts work for all ranks among which a layer's experts are divided.
int ReplicaTurns::replicas_together(const Bucket& bucket) const {
  const PlanSpec& spec = split_.spec();
  if (!spec.compresses()) return 1;
  const Holders holders = spec.holders(bucket.experts);
  return holders.stride * holders.near / spec.mesh.tensor;
}

void ReplicaTurns::make_own(BucketId shared, bool apart) {
  for (const BucketId b : to_.made.buckets.keys()) {
    const Bucket& bucket = to_.made.buckets[b];
    const DType dtype = to_.made.buffers[bucket.gradients].dtype;
    const int together = replicas_together(bucket);
    if (split_.spec().compresses() && together == workers_) continue;  // experts that no other rank has
    for (const bool of_head : {false, true}) {
      if (of_head && !(apart && b == shared)) continue;
      OwnGradients one;
      one.together = together;
      one.bucket = b;
      one.of_head = of_head;
      one.gradients = to_.persistent(bucket.name + (of_head ? ".own_of_head" : ".own"), Purpose::gradients, dtype,
                                     to_.made.buckets[b].elements);
      own_.push_back(std::move(one));
    }
  }
}

void ReplicaTurns::redirect(BucketId shared, bool apart) {
  for (Step& step : to_.block("backward").steps) {
    const bool of_head = apart && step.part != "embedding";  // which may look up too, to predict further
    for (Op& op : step.ops)
      for (int& operand : op.out) {
        if (operand < 0) continue;
        View v = to_.made.views[at(operand)];
        for (const OwnGradients& one : own_)
          if (v.buffer == to_.made.buckets[one.bucket].gradients && one.of_head == (of_head && one.bucket == shared))
            v.buffer = one.gradients;
        if (!(v == to_.made.views[at(operand)])) operand = to_.build.view(v);
      }
    to_.settle(step);
  }
}

void ReplicaTurns::run(std::int64_t first, std::int64_t last) {
  for (int w = 0; w < workers_; ++w) {
    for (const Turn& turn : turns_)
      if (w % turn.together == 0) to_.enter(turn.zero);
    for (std::int64_t i = first; i < last; ++i) to_.pass(w * split_.micro_batches() + i);
    for (const Turn& turn : turns_)
      if (w % turn.together == turn.together - 1) to_.enter(turn.take[at(w / turn.together)]);
  }
}

}  // namespace orrery::plan
