#pragma once
/// What happens to a layer's buckets within passes: ZeRO 3 gathers parameters before a layer runs, ZeRO 2 and 3 give
/// its gradients a buffer of their own until they are reduced. Private to plan/.
#include <vector>

#include "plan/lower/compress.h"
#include "plan/lower/shard_sums.h"
#include "plan/lower/stage_layers.h"

namespace orrery::plan {

class PassBuckets {
 public:
  /// `reduce_beside`: LowerOptions::reduce_beside. The class has its buckets and their buffers. All references must
  /// outlive this.
  PassBuckets(const PlanSpec& spec, const Groups& groups, ClassBuilder& build, bool reduce_beside)
      : spec_(spec),
        groups_(groups),
        build_(build),
        compressed_(build, groups, spec, Reduces::in_every_pass),
        sums_(build, reduce_beside) {}

  /// The buffers that hold a layer's full parameters, by its buckets: persistent ones, or under ZeRO 3 those gathered
  /// for this use, whose names end in `suffix`.
  [[nodiscard]] std::vector<BufferId> gather(const StageLayer& layer, const char* suffix);
  /// The same for backward; none where it reads no parameters.
  [[nodiscard]] std::vector<BufferId> gather_for_backward(const StageLayer& layer);

  /// The buffers for a layer's gradients in one pass, and the operators that zero those which live in this pass alone.
  struct Gradients {
    std::vector<BufferId> buffers;  ///< by the layer's buckets
    std::vector<models::Op> zero;
  };
  [[nodiscard]] Gradients gradients_of(const StageLayer& layer);

  /// ZeRO 2 and 3: reduce-scatters a layer's gradients; in fewer bits, the first part of that.
  void reduce(const StageLayer& layer, const std::vector<BufferId>& gradients);
  /// Adds what has been reduced to this rank's shards.
  void add_up() { sums_.flush(); }
  /// What is left of reductions in fewer bits.
  void end() { compressed_.flush(); }

 private:
  const PlanSpec& spec_;
  const Groups& groups_;
  ClassBuilder& build_;
  CompressedReduction compressed_;
  ShardSums sums_;
};

}  // namespace orrery::plan
