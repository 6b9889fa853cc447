// Reductions, bound to a class.
#include "plan/lower/compress.h"

namespace orrery::plan {

OutlineWriter Reducing::of(BucketId bucket, BufferId gradients, LayerId layer, std::string label) const {
  const ShapeOf shape(build.bucket(bucket), spec);
  OutlinedBucket bound = outlined(build, bucket, layer);
  bound.label = std::move(label);
  if (gradients) buffer_of(bound, Memory::gradients) = gradients;
  return {build, groups, reduction_of(*shape, spec, when, low_rank), std::move(bound)};
}

void Reducing::write(BucketId bucket) const {
  OutlineWriter writer = of(bucket);
  for (int part = 0; part < writer.parts(); ++part) writer.write(part);
}

}  // namespace orrery::plan
