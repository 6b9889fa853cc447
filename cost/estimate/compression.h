#pragma once
/// What compression costs, without lowering (plan/lower/compress.h, plan/lower/encode.h): seconds and bytes of a
/// bucket's reduction in fewer bits, and of activations that wait in fewer bits.
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds of one bucket's reduction over the replicas `group`.
struct ReductionTimes {
  double messages = 0, compute = 0;
};
[[nodiscard]] ReductionTimes compressed_reduction(const BucketSize& bucket, const plan::PlanSpec& spec,
                                                  const Pricing& pricing, const std::vector<int>& group);

/// Seconds to gather a bucket's updated parameters from the replicas that own its shards (ZeRO 1 and 2): all at once,
/// or, where gradients are exchanged by node, among equals and then within the node.
[[nodiscard]] double parameter_gather(const BucketSize& bucket, const plan::PlanSpec& spec, const Pricing& pricing,
                                      const std::vector<int>& group);

/// Bytes of an arena that a bucket's error and Q take.
[[nodiscard]] double compression_states(const BucketSize& bucket, const plan::PlanSpec& spec);
/// Most bytes of what is sent and received at a time, of buckets one after the other.
[[nodiscard]] double compression_buffers(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Bytes of what equals on all nodes have gathered of a bucket's parameters (ZeRO 1 and 2 by node); 0 elsewhere.
[[nodiscard]] double gathered_pieces(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Notes in a block of the model what of it waits encoded, and adds what encoding and decoding take to its passes.
void add_encoding(LayerCosts& costs, const models::LayerProgram& program, const std::vector<int>& life_of,
                  const plan::Compression& compression, const Pricing& pricing);

}  // namespace orrery::cost
