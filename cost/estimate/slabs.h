#pragma once
/// Memory that a stage keeps between its passes: slabs of buffers that begin in one block and end in another
/// (plan/schedule/place.h).
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::cost {

/// Counts slabs that are alive, by pool. `sizes`: bytes of each kind of slab.
class SlabCount {
 public:
  explicit SlabCount(const std::vector<std::int64_t>& sizes);
  void change(std::size_t kind, int by);
  /// Bytes of all pools, once everything has been counted.
  [[nodiscard]] double sum() const;
  /// The most bytes of slabs that were alive at a time: of an allocator that gives what one kind frees to another.
  [[nodiscard]] double at_once() const { return static_cast<double>(most_at_once_); }

 private:
  std::vector<int> pool_of_;
  std::vector<std::int64_t> alive_, most_, bytes_, sizes_;
  std::int64_t now_ = 0, most_at_once_ = 0;
};

/// What a chunk keeps for one micro-batch from its forward to its backward pass; bytes.
struct ChunkSlab {
  double kept = 0;        ///< made by the chunk itself
  double received = 0;    ///< its input, if it comes in a message
  bool x_leaves = false;  ///< its input goes to the host, so that forward frees it
};

/// Most bytes of the slabs of interleaved chunks, including messages of `boundary` bytes that wait for their turn.
[[nodiscard]] double interleaved_slabs(const std::vector<ChunkSlab>& chunks, double boundary,
                                       const plan::PlanSpec& spec, plan::StageId stage, std::int64_t micro_batches);

}  // namespace orrery::cost
