// Tiles of ranges and their copies on the device.
#include "exec/cuda/ranges.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::exec::cuda {
namespace {

bool same(const ElementRange& a, const ElementRange& b) {
  return a.begin == b.begin && a.end == b.end && a.decay == b.decay && a.norm_weight == b.norm_weight;
}

std::unique_ptr<RangeTable> make_table(std::span<const ElementRange> ranges, std::int64_t elements,
                                       cudaStream_t stream) {
  const std::vector<RangeTile> tiles = tiles_of(ranges, elements);
  auto table = std::make_unique<RangeTable>();
  table->ranges.assign(ranges.begin(), ranges.end());
  table->elements = elements;
  table->tiles = static_cast<std::int64_t>(tiles.size());
  table->table = DeviceMemory(tiles.size() * sizeof(RangeTile), "allocating a table of ranges");
  table->partials = DeviceMemory(tiles.size() * sizeof(double), "allocating partial sums");
  if (tiles.empty()) return table;
  check(cudaMemcpyAsync(table->table.data(), tiles.data(), table->table.bytes(), cudaMemcpyHostToDevice, stream),
        "copying a table of ranges");
  check(cudaStreamSynchronize(stream), "copying a table of ranges");  // `tiles` dies here; once per table
  return table;
}

}  // namespace

std::vector<RangeTile> tiles_of(std::span<const ElementRange> ranges, std::int64_t elements) {
  const ElementRange all{0, elements, false, 1};
  if (ranges.empty()) ranges = {&all, 1};
  std::vector<RangeTile> tiles;
  for (const ElementRange& range : ranges) {
    ENSURE(0 <= range.begin && range.begin <= range.end && range.end <= elements, "range {}..{} of {} elements",
           range.begin, range.end, elements);
    for (std::int64_t at = range.begin; at < range.end; at += kTileElements) {
      const std::int64_t count = std::min(kTileElements, range.end - at);
      tiles.push_back({at, static_cast<std::int32_t>(count), range.decay ? 1 : 0, range.norm_weight});
    }
  }
  return tiles;
}

const RangeTable& RangeTables::find(std::span<const ElementRange> ranges, std::int64_t elements, cudaStream_t stream) {
  for (const auto& table : tables_)
    if (table->elements == elements &&
        std::equal(ranges.begin(), ranges.end(), table->ranges.begin(), table->ranges.end(), same))
      return *table;
  tables_.push_back(make_table(ranges, elements, stream));
  return *tables_.back();
}

std::int64_t RangeTables::bytes() const {
  std::size_t total = 0;
  for (const auto& table : tables_) total += table->table.bytes() + table->partials.bytes();
  return static_cast<std::int64_t>(total);
}

}  // namespace orrery::exec::cuda
