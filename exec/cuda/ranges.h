#pragma once
/// A flat vector's ranges as the optimizer's kernels need them: cut into tiles, copied to the device once, and found
/// again by content.
#include <memory>
#include <span>
#include <vector>

#include "exec/cuda/handles.h"
#include "exec/cuda/kernels/updates.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

/// How ranges are cut: into tiles of at most kTileElements; matrices into rows; or, with neighbours of the same decay
/// joined, into blocks that share a quantisation scale.
enum class Cut : std::uint8_t { tiles, rows, blocks };

/// Ranges and their tiles, in order. Each tile is inside one range, or between ranges and in none, so that tiles cover
/// all of [0, elements). Without ranges everything is one range with weight 1 and no decay. Ranges must be in [0,
/// elements) and in order.
struct CutRanges {
  std::vector<DeviceRange> ranges;
  std::vector<RangeTile> tiles;
  std::vector<Stripe> stripes;  ///< for Cut::rows
};
[[nodiscard]] CutRanges cut_ranges(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut);

class RangeTables {
 public:
  /// The tables of these ranges; made at the first call and copied on `stream`.
  [[nodiscard]] const Tables& find(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut,
                                   cudaStream_t stream);
  [[nodiscard]] std::int64_t bytes() const;  ///< on the device

 private:
  struct Kept {
    std::vector<ElementRange> source;
    std::int64_t elements = 0;
    Cut cut{};
    DeviceMemory memory;
    Tables tables;
  };
  [[nodiscard]] static std::unique_ptr<Kept> make(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut,
                                                  cudaStream_t stream);
  std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace orrery::exec::cuda
