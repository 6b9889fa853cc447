// Gathers and reductions within passes, as their outlines say (plan/outline/).
#include "plan/lower/pass_buckets.h"

#include <utility>

#include "plan/outline/layer_pass.h"
#include "plan/outline/reduction.h"

namespace orrery::plan {

std::vector<BufferId> PassBuckets::gather(const StageLayer& layer, const char* suffix) {
  std::vector<BufferId> holders;
  for (const BucketId b : layer.buckets) {
    const Bucket& bucket = build_.bucket(b);
    Outline gather = gathered_in_pass(*ShapeOf(bucket, spec_), spec_);
    if (gather.items.empty()) {  // what no other rank has a part of is whole
      holders.push_back(zero_of(spec_) == 3 ? bucket.shard : bucket.parameters);
      continue;
    }
    const BufferId full = build_.buffer(label(layer) + "." + bucket.name + ".gathered" + suffix, Purpose::parameters,
                                        expand_options(spec_).dtype, bucket.elements);
    OutlinedBucket bound = outlined(build_, b, layer.layer);
    buffer_of(bound, Memory::parameters) = full;
    write_outline(build_, groups_, std::move(gather), bound);
    holders.push_back(full);
  }
  return holders;
}

std::vector<BufferId> PassBuckets::gather_for_backward(const StageLayer& layer) {
  if (backward_reads_parameters(*layer.program)) return gather(layer, ".backward");
  return std::vector<BufferId>(layer.buckets.size());
}

PassBuckets::Gradients PassBuckets::gradients_of(const StageLayer& layer) {
  Gradients out;
  for (const BucketId b : layer.buckets) {
    const Bucket& bucket = build_.bucket(b);
    if (zero_of(spec_) < 2 || bucket.frozen) {
      out.buffers.push_back(bucket.gradients);
      continue;
    }
    const BufferId full = build_.buffer(label(layer) + "." + bucket.name + ".gradients", Purpose::gradients,
                                        gradient_dtype(spec_.numerics.precision), bucket.elements);
    out.buffers.push_back(full);
    OutlinedBucket bound = outlined(build_, b);
    buffer_of(bound, Memory::gradients) = full;
    OutlineWriter writer(build_, groups_, zeroed_in_pass(*ShapeOf(bucket, spec_), spec_), bound);
    for (models::Op& op : writer.operators(0)) out.zero.push_back(std::move(op));
  }
  return out;
}

void PassBuckets::reduce(const StageLayer& layer, const std::vector<BufferId>& gradients) {
  for (std::size_t i = 0; i < layer.buckets.size(); ++i) {
    const BucketId b = layer.buckets[i];
    if (spec_.compresses()) {
      compressed_.add(b, gradients[i], layer.layer);
      continue;
    }
    if (build_.bucket(b).frozen) continue;
    const Reducing reducing{build_, groups_, spec_, Reduces::in_every_pass};
    OutlineWriter writer = reducing.of(b, gradients[i], layer.layer, label(layer) + ".");
    writer.write(0);
    sums_.add(std::move(writer), gradients[i]);
  }
}

}  // namespace orrery::plan
