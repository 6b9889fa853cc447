// Divides ranges into tiles and copies them to the device.
#include "exec/cuda/ranges.h"

#include <algorithm>
#include <cstring>

#include "base/ensure.h"
#include "models/operators/op.h"

namespace orrery::exec::cuda {
namespace {

bool same(const ElementRange& a, const ElementRange& b) {
  return a.begin == b.begin && a.end == b.end && a.decay == b.decay && a.norm_weight == b.norm_weight &&
         a.norms == b.norms && a.share == b.share && a.first == b.first && a.columns == b.columns &&
         a.all_rows == b.all_rows && a.all_columns == b.all_columns && a.factor_sum == b.factor_sum &&
         a.factor_rows == b.factor_rows && a.factor_columns == b.factor_columns && a.stream == b.stream &&
         a.logical == b.logical && a.orthogonal == b.orthogonal;
}

DeviceRange on_device(const ElementRange& range) {
  DeviceRange out;
  out.begin = range.begin;
  out.end = range.end;
  out.norms = range.norms;
  out.first = range.first;
  out.columns = range.columns;
  out.factor_sum = range.factor_sum;
  out.factor_rows = range.factor_rows;
  out.factor_columns = range.factor_columns;
  out.logical = range.logical;
  out.stream = range.stream;
  out.share = range.share;
  out.all_rows = static_cast<double>(range.all_rows);
  out.all_columns = static_cast<double>(range.all_columns);
  out.orthogonal = range.orthogonal;
  out.decay = range.decay ? 1 : 0;
  return out;
}

/// Joins neighbours: blocks continue across the parts of a fused parameter, however finely the call's ranges divide it.
std::vector<ElementRange> joined(std::span<const ElementRange> ranges) {
  std::vector<ElementRange> out;
  for (const ElementRange& range : ranges) {
    if (!out.empty() && out.back().end == range.begin && out.back().decay == range.decay)
      out.back().end = range.end;
    else
      out.push_back(range);
  }
  return out;
}

class Cutter {
 public:
  explicit Cutter(Cut cut) : cut_(cut) {}

  void gap(std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kTileElements)
      add({.begin = at, .count = count(at, end, kTileElements), .norm_weight = 0});
  }

  void range(const ElementRange& range) {
    const auto index = static_cast<std::int32_t>(out_.ranges.size());
    DeviceRange made = on_device(range);
    made.first_tile = static_cast<std::int64_t>(out_.tiles.size());
    RangeTile tile;
    tile.range = index;
    tile.decay = made.decay;
    tile.norm_weight = range.norm_weight;
    if (cut_ == Cut::rows && range.columns > 0)
      rows(range, tile);
    else
      pieces(range, tile);
    made.tiles = static_cast<std::int64_t>(out_.tiles.size()) - made.first_tile;
    out_.ranges.push_back(made);
  }

  [[nodiscard]] CutRanges take() { return std::move(out_); }

 private:
  static std::int32_t count(std::int64_t at, std::int64_t end, std::int64_t most) {
    return static_cast<std::int32_t>(std::min(most, end - at));
  }
  void add(const RangeTile& tile) { out_.tiles.push_back(tile); }

  void pieces(const ElementRange& range, RangeTile tile) {
    const std::int64_t most = cut_ == Cut::blocks ? models::kQuantisedBlock : kTileElements;
    ENSURE(cut_ != Cut::blocks || range.begin % models::kQuantisedBlock == 0,
           "a parameter begins at {}, within a block", range.begin);
    for (tile.begin = range.begin; tile.begin < range.end; tile.begin += most) {
      tile.count = count(tile.begin, range.end, most);
      add(tile);
    }
  }

  void rows(const ElementRange& range, RangeTile tile) {
    if (range.begin == range.end) return;
    const std::int64_t shift = range.begin - range.first;  // from the parameter's part to the vector
    const std::int64_t last = range.end - shift;
    for (std::int64_t at = range.first; at < last;) {
      const std::int64_t row_end = (at / range.columns + 1) * range.columns;
      tile.begin = at + shift;
      tile.row = at / range.columns;
      tile.column = static_cast<std::int32_t>(at % range.columns);
      tile.count = count(at, std::min(row_end, last), range.columns);
      add(tile);
      at += tile.count;
    }
    for (std::int64_t column = 0; column < range.columns; column += 32)
      out_.stripes.push_back({tile.range, static_cast<std::int32_t>(column)});
  }

  Cut cut_;
  CutRanges out_;
};

/// Places of consecutive arrays.
struct Layout {
  std::size_t bytes = 0;
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = bytes;
    bytes += (count * sizeof(T) + 255) / 256 * 256;
    return at;
  }
};

}  // namespace

CutRanges cut_ranges(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut) {
  const ElementRange all{0, elements, false, 1, 0};
  if (ranges.empty()) ranges = {&all, 1};
  std::vector<ElementRange> longer;
  if (cut == Cut::blocks) {
    longer = joined(ranges);
    ranges = longer;
  }
  Cutter cutter(cut);
  std::int64_t at = 0;
  for (const ElementRange& range : ranges) {
    if (range.begin == range.end) {  // from a part of a bucket that is all padding
      cutter.range(range);
      continue;
    }
    ENSURE(at <= range.begin && range.begin <= range.end && range.end <= elements, "range {}..{} of {} elements",
           range.begin, range.end, elements);
    cutter.gap(at, range.begin);
    cutter.range(range);
    at = range.end;
  }
  cutter.gap(at, elements);
  return cutter.take();
}

std::unique_ptr<RangeTables::Kept> RangeTables::make(std::span<const ElementRange> ranges, std::int64_t elements,
                                                     Cut cut, cudaStream_t stream) {
  const CutRanges made = cut_ranges(ranges, elements, cut);
  Layout layout;
  const std::size_t tiles = layout.add<RangeTile>(made.tiles.size());
  const std::size_t of_ranges = layout.add<DeviceRange>(made.ranges.size());
  const std::size_t stripes = layout.add<Stripe>(made.stripes.size());
  const std::size_t copied = layout.bytes;
  const std::size_t partials = layout.add<double>(2 * made.tiles.size());
  auto kept = std::make_unique<Kept>();
  kept->source.assign(ranges.begin(), ranges.end());
  kept->elements = elements;
  kept->cut = cut;
  kept->memory = DeviceMemory(layout.bytes, "allocating a table of ranges");
  std::vector<std::byte> image(copied);
  const auto put = [&](std::size_t at, const auto& from) {
    if (!from.empty()) std::memcpy(image.data() + at, from.data(), from.size() * sizeof(from[0]));
  };
  put(tiles, made.tiles);
  put(of_ranges, made.ranges);
  put(stripes, made.stripes);
  auto* const base = static_cast<std::byte*>(kept->memory.data());
  if (!image.empty()) {
    check(cudaMemcpyAsync(base, image.data(), image.size(), cudaMemcpyHostToDevice, stream),
          "copying a table of ranges");
    check(cudaStreamSynchronize(stream), "copying a table of ranges");  // `image` ends here; once per table
  }
  Tables& t = kept->tables;
  t.tiles = reinterpret_cast<const RangeTile*>(base + tiles);
  t.tile_count = static_cast<std::int64_t>(made.tiles.size());
  t.ranges = reinterpret_cast<const DeviceRange*>(base + of_ranges);
  t.range_count = static_cast<std::int64_t>(made.ranges.size());
  t.stripes = reinterpret_cast<const Stripe*>(base + stripes);
  t.stripe_count = static_cast<std::int64_t>(made.stripes.size());
  t.partials = reinterpret_cast<double*>(base + partials);
  return kept;
}

const Tables& RangeTables::find(std::span<const ElementRange> ranges, std::int64_t elements, Cut cut,
                                cudaStream_t stream) {
  for (const auto& kept : kept_)
    if (kept->elements == elements && kept->cut == cut &&
        std::equal(ranges.begin(), ranges.end(), kept->source.begin(), kept->source.end(), same))
      return kept->tables;
  kept_.push_back(make(ranges, elements, cut, stream));
  return kept_.back()->tables;
}

std::int64_t RangeTables::bytes() const {
  std::size_t total = 0;
  for (const auto& kept : kept_) total += kept->memory.bytes();
  return static_cast<std::int64_t>(total);
}

}  // namespace orrery::exec::cuda
