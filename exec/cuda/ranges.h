#pragma once
/// Ranges of a flat vector as the optimizer's kernels want them: cut into tiles, copied to the device once and found
/// again by content afterwards.
#include <memory>
#include <span>
#include <vector>

#include "exec/backend.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

/// Tiles of at most kTileElements, each inside one range, in order. Without ranges, all of [0, elements) counts with
/// weight 1 and without decay. Ranges must lie in [0, elements).
[[nodiscard]] std::vector<RangeTile> tiles_of(std::span<const ElementRange> ranges, std::int64_t elements);

/// One table on the device, with the scratch that norm_squared needs for it.
struct RangeTable {
  std::vector<ElementRange> ranges;
  std::int64_t elements = 0;
  std::int64_t tiles = 0;
  DeviceMemory table, partials;
  [[nodiscard]] const RangeTile* data() const { return static_cast<const RangeTile*>(table.data()); }
  [[nodiscard]] double* scratch() const { return static_cast<double*>(partials.data()); }
};

class RangeTables {
 public:
  /// The table of these ranges; made, and copied on `stream`, at the first call.
  [[nodiscard]] const RangeTable& find(std::span<const ElementRange> ranges, std::int64_t elements,
                                       cudaStream_t stream);
  [[nodiscard]] std::int64_t bytes() const;  ///< on the device

 private:
  std::vector<std::unique_ptr<RangeTable>> tables_;
};

}  // namespace orrery::exec::cuda
