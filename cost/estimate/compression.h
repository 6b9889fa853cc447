#pragma once
/// The cost of compression, without lowering (plan/lower/compress.h, plan/lower/encode.h): seconds and bytes of a
/// bucket's reduction in fewer bits, and of activations stored in fewer bits.
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds to reduce one bucket over the replicas `group`.
struct ReductionTimes {
  double messages = 0, compute = 0;
};
[[nodiscard]] ReductionTimes compressed_reduction(const BucketSize& bucket, const plan::PlanSpec& spec,
                                                  const Pricing& pricing, const std::vector<int>& group);

/// Seconds to gather a bucket's updated parameters from the replicas that own its shards (ZeRO 1 and 2): all at once,
/// or, if gradients are reduced by node, first between nodes and then within the node.
[[nodiscard]] double parameter_gather(const BucketSize& bucket, const plan::PlanSpec& spec, const Pricing& pricing,
                                      const std::vector<int>& group);

/// Bytes of the arena that a bucket's error and Q take.
[[nodiscard]] double compression_states(const BucketSize& bucket, const plan::PlanSpec& spec);
/// The most bytes that are sent and received at a time, over buckets one after the other.
[[nodiscard]] double compression_buffers(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Bytes of a bucket's parameters after the gather between nodes (ZeRO 1 and 2 by node); 0 otherwise.
[[nodiscard]] double gathered_pieces(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Marks the tensors of a block that wait encoded, and adds the time of encoding and decoding to its passes.
void add_encoding(LayerCosts& costs, const models::LayerProgram& program, const std::vector<int>& life_of,
                  const plan::Compression& compression, const Pricing& pricing);

}  // namespace orrery::cost
