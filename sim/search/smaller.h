#pragma once
/// What the memory of a plan says about plans that differ from it by larger micro-batches alone. Private to
/// sim/search/.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::sim {

/// Whether a plan needs no less memory than one with smaller micro-batches that is otherwise equal: both have as many
/// of them in flight, and add up gradients of several. Only of orders in which that number does not depend on how many
/// there are in all, once the pipeline is full.
[[nodiscard]] inline bool grows_with_micro_batches(const plan::PlanSpec& spec) {
  // Before the first backward pass an interleaved stage runs fewer than chunks + 1 passes for each stage.
  const std::int64_t full = spec.mesh.pipeline * (spec.stages.virtual_stages > 1 ? 2 : 1);
  return spec.stages.order == plan::Order::one_f_one_b && !spec.states.has_server() && !spec.offload.any() &&
         spec.micro_batches() >= std::max<std::int64_t>(2, full);
}

/// Lower bounds of the memory that points of a space need. Threads may use it at the same time; what one of them finds
/// out too late is only work done twice.
class SmallerMicroBatches {
 public:
  /// `space`: the points of a mesh with equal micro-batches are neighbours, in the same order for each size.
  explicit SmallerMicroBatches(const std::vector<plan::PlanSpec>& space)
      : smaller_(space.size()), bytes_(space.size()) {
    std::size_t before = 0, begin = 0;  // of points with smaller micro-batches, and of those now
    for (std::size_t i = 0; i < space.size(); ++i) {
      smaller_[i] = i;
      if (i > 0 && space[i].shape.micro_batch != space[i - 1].shape.micro_batch) before = begin, begin = i;
      const std::size_t other = before + (i - begin);
      if (other < begin && space[other].shape.micro_batch < space[i].shape.micro_batch &&
          grows_with_micro_batches(space[i]) && alike(space[other], space[i]))
        smaller_[i] = other;
    }
  }
  /// Point i needs as many bytes, or more.
  void needs(std::size_t i, double bytes) { bytes_[i].store(bytes, std::memory_order_relaxed); }
  /// Bytes that point i needs at least; 0: not known.
  [[nodiscard]] double least(std::size_t i) const {
    return smaller_[i] == i ? 0 : bytes_[smaller_[i]].load(std::memory_order_relaxed);
  }

 private:
  static bool alike(plan::PlanSpec a, const plan::PlanSpec& b) {
    a.shape.micro_batch = b.shape.micro_batch;
    return a == b;
  }
  std::vector<std::size_t> smaller_;  ///< a point with the next smaller micro-batches; itself: none
  std::vector<std::atomic<double>> bytes_;
};

}  // namespace orrery::sim
