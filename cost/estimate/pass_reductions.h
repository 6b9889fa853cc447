#pragma once
/// Reductions of gradients as a chunk's passes write them: within the step's last pass, or after each layer of every
/// pass (ZeRO-2 and 3). Private to cost/estimate/.
#include <array>
#include <cstddef>
#include <vector>

#include "cost/estimate/chunk_buckets.h"
#include "plan/outline/turns.h"

namespace orrery::cost {

/// Reductions within the last pass, each behind the last step that adds to its gradients.
class LateReductions {
 public:
  /// `any`: the chunk's pass is the step's last.
  LateReductions(ChunkBuckets& buckets, PassWriter& out, bool any)
      : buckets_(buckets), out_(out), any_(any), turns_(WriteReduction{&out}) {}

  /// The pass that runs next, one of the layer's.
  void begin(const LayerCosts& c, const Pass& pass);
  void behind(std::size_t segment);
  /// ZeRO-2 and 3 with sub-groups: what has been added up of a layer is summed over them.
  void accumulated(const LayerCosts& c);
  void end() { turns_.flush(); }

 private:
  void reduce(const LayerCosts& c, LayerBucket bucket);

  ChunkBuckets& buckets_;
  PassWriter& out_;
  bool any_;
  const LayerCosts* costs_ = nullptr;
  std::array<int, 3> last_ = {-1, -1, -1};  ///< by bucket: the last segment that adds to its gradients; -1: none
  plan::Turns<TimedReduction, WriteReduction> turns_;
};

/// Reductions of ZeRO-2 and 3, layer by layer.
class LayerReductions {
 public:
  LayerReductions(ChunkBuckets& buckets, PassWriter& out)
      : buckets_(buckets), out_(out), turns_(WriteReduction{&out}) {}

  void reduce(const LayerCosts& c);
  /// Adds what the latest layer's have brought to the shards.
  void add_up(LateReductions& late);
  void end() { turns_.flush(); }

 private:
  struct Reduced {
    const ReductionTimes* times = nullptr;
    int message = -1;  ///< its last one
  };
  void in_fewer_bits(const LayerCosts& c);
  void add_to_shards();

  ChunkBuckets& buckets_;
  PassWriter& out_;
  const LayerCosts* of_ = nullptr;
  std::vector<Reduced> brought_;
  plan::Turns<TimedReduction, WriteReduction> turns_;
};

}  // namespace orrery::cost
