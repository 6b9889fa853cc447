#pragma once
/// Ranges of a flat vector as the optimizer's kernels want them: cut into tiles, copied to the device once and found
/// again by content afterwards.
#include <memory>
#include <span>
#include <vector>

#include "exec/cuda/handles.h"
#include "exec/cuda/kernels/updates.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

/// How ranges are cut: into tiles of at most kTileElements; those that are matrices into their rows; or, neighbours
/// with the same decay joined, into blocks that share a quantisation scale.
enum class Cut : std::uint8_t { tiles, rows, blocks };

/// Ranges and their tiles, each inside one range, in order, and between them tiles of no range, so that all of
/// [0, elements) is in some tile. Without ranges, everything is one, with weight 1 and without decay. Ranges must lie
/// in [0, elements), in order.
struct CutRanges {
  std::vector<DeviceRange> ranges;
  std::vector<RangeTile> tiles;
  std::vector<Stripe> stripes;  ///< of Cut::rows
};
[[nodiscard]] CutRanges cut_ranges(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut);

class RangeTables {
 public:
  /// The tables of these ranges; made, and copied on `stream`, at the first call.
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
