#pragma once
/// Layouts of embedding tables as kernels want them: copied to the device once, found again by content, with the memory
/// that operators on them need besides their operands.
#include <cstddef>
#include <memory>
#include <vector>

#include "exec/cuda/handles.h"
#include "exec/cuda/kernels/tables.h"

namespace orrery::plan {
struct TableLayout;
}

namespace orrery::exec::cuda {

class TableLayouts {
 public:
  struct Found {
    TableParts parts;
    TableRoom room;
  };
  /// As `rank` sees it; made, and copied on `stream`, at the first call. `merges`: with room for merging rows.
  [[nodiscard]] const Found& find(const plan::TableLayout& layout, int rank, bool merges, cudaStream_t stream);
  [[nodiscard]] std::int64_t bytes() const;  ///< on the device

 private:
  struct Kept {
    std::vector<std::byte> image;  ///< the arrays, with the sizes before them
    Found found;
    DeviceMemory memory, room;
    DeviceMemory merging;  ///< room for merging, allocated when first asked for; `room` stays as it is, because graphs
                           ///< know its addresses
  };
  std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace orrery::exec::cuda
