// Arrays of parts and their copies on the device.
#include "exec/cuda/table_layouts.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/ensure.h"
#include "exec/cuda/check.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec::cuda {
namespace {

using plan::PooledEnd;
using plan::PooledType;
using plan::PooledWay;
using plan::TableLayout;
using plan::TableShard;

float weight_of(const TableLayout::Table& table) {
  return table.mean ? 1.0F / static_cast<float>(table.multi_hot) : 1.0F;
}

TablePart part_of(const TableLayout& layout, const TableShard& shard) {
  const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
  TablePart out;
  out.row_begin = shard.row_begin;
  out.row_end = shard.row_end;
  out.column_begin = shard.column_begin;
  out.columns = shard.columns();
  out.offset = shard.offset;
  out.state = shard.state;
  out.column = shard.column;
  out.squares = shard.squares;
  out.first_index = table.first_index;
  out.multi_hot = table.multi_hot;
  out.rank = shard.rank;
  out.table = shard.table;
  out.weight = weight_of(table);
  return out;
}

/// The arrays of a layout on the host.
struct Arrays {
  TableParts sizes;  ///< without addresses
  std::vector<TablePart> parts, replicated;
  std::vector<JoinedPart> joined;
  std::vector<std::int64_t> columns, vectors;
  std::vector<std::int32_t> first, of_table, counts;
};

// Each table's, in the order in which they are summed.
void join_parts(Arrays& out, const TableLayout& layout) {
  std::vector<std::vector<JoinedPart>> by_table(layout.tables.size());
  const auto join = [&](int table, JoinedPart part) {
    part.weight = weight_of(layout.tables[static_cast<std::size_t>(table)]);
    by_table[static_cast<std::size_t>(table)].push_back(part);
  };
  for (const plan::PooledPart& part : layout.parts)
    join(part.table, {part.column_begin, part.columns, part.at, part.stride});
  for (const TableShard& shard : layout.replicated)
    join(shard.table,
         {.columns = shard.columns(), .at = shard.column, .stride = layout.replicated_columns, .local = 1});
  for (const std::vector<JoinedPart>& parts : by_table) {
    out.of_table.push_back(static_cast<std::int32_t>(out.joined.size()));
    out.joined.insert(out.joined.end(), parts.begin(), parts.end());
  }
  out.of_table.push_back(static_cast<std::int32_t>(out.joined.size()));
}

void add_parts(Arrays& out, const TableLayout& layout) {
  for (int rank = 0; rank < layout.ranks; ++rank) {
    std::int32_t of_way[plan::kPooledWays] = {};
    for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i) {
      const TableShard& shard = layout.shards[i];
      const plan::PooledSlots slots = layout.slots(PooledEnd::tables, shard.way, PooledType::fp32);
      TablePart part = part_of(layout, shard);
      part.at = slots.offset + shard.column;
      part.slot = slots.slot;
      part.stride = layout.columns_of(rank, shard.way);
      part.place = static_cast<std::int32_t>(i - layout.begin(rank));
      part.way = static_cast<std::int32_t>(shard.way);
      part.place_of_way = of_way[static_cast<std::size_t>(shard.way)]++;
      part.by_places = shard.way == PooledWay::node ? 1 : 0;
      out.parts.push_back(part);
    }
  }
  std::int64_t lookups = 0;
  for (const TableShard& shard : layout.replicated) {
    out.replicated.push_back(part_of(layout, shard));
    out.replicated.back().at = shard.column;
    out.replicated.back().stride = layout.replicated_columns;
    out.replicated.back().place = -1;
    out.replicated.back().lookups_before = lookups;
    lookups += out.replicated.back().multi_hot;
  }
  out.sizes.replicated_lookups = lookups;
  join_parts(out, layout);
}

void add_ranks(Arrays& out, const TableLayout& layout, int own) {
  for (int rank = 0; rank <= layout.ranks; ++rank)
    out.first.push_back(static_cast<std::int32_t>(layout.first[static_cast<std::size_t>(rank)]));
  for (const PooledWay way : plan::kEveryWay)
    for (const auto& of_rank : layout.of_rank) {
      out.columns.push_back(of_rank[static_cast<std::size_t>(way)].columns);
      out.vectors.push_back(of_rank[static_cast<std::size_t>(way)].shards);
    }
  const auto count = [&](PooledWay way, int members, int every) {
    for (int run = 0; run < 4; ++run)  // forward sent and received, backward sent and received
      for (int member = 0; member < members; ++member)
        out.counts.push_back(static_cast<std::int32_t>(layout.pooled_values(
            run == 0 || run == 3 ? own : member * every, way, run < 2 ? layout.forward : layout.backward)));
  };
  count(PooledWay::exchange, layout.ranks, 1);
  count(PooledWay::node, layout.nodes(), layout.ranks_per_node);
}

void add_sizes(Arrays& out, const TableLayout& layout, int rank) {
  TableParts& s = out.sizes;
  s.ranks = layout.ranks;
  s.per_node = layout.ranks_per_node;
  s.nodes = layout.nodes();
  s.own_count = static_cast<std::int32_t>(layout.shards_of(rank));
  s.replicated_count = static_cast<std::int32_t>(layout.replicated.size());
  s.tables = static_cast<std::int32_t>(layout.tables.size());
  s.samples = layout.samples;
  s.dim = layout.embedding_dim;
  s.indices = layout.indices;
  s.words = layout.words;
  s.most_shards = layout.most_shards;
  s.most_indices = layout.most_indices;
  s.most_rows = layout.most_rows;
  s.squares = layout.squares;
  s.at_tables = layout.pooled_elements(PooledEnd::tables, PooledType::fp32);
  s.at_samples = layout.pooled_elements(PooledEnd::samples, PooledType::fp32);
  s.replicated_rows = layout.replicated_rows;
  s.replicated_columns = layout.replicated_columns;
  s.packed = layout.embedding_dim % 4 == 0;
  for (const TablePart& part : out.parts) {
    s.packed = s.packed && part.column_begin % 4 == 0 && part.columns % 4 == 0;
    if (part.rank == rank) s.widest = std::max(s.widest, part.columns);
  }
  for (const TablePart& part : out.replicated) s.widest = std::max(s.widest, part.columns);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  ENSURE(s.lookups() < kMost && s.bags() < kMost && s.samples * s.replicated_lookups < kMost &&
             s.samples * s.ranks < kMost && s.most_rows < kMost,
         "{} lookups of {} samples in a step", s.lookups(), s.samples * s.ranks);
}

/// Places of arrays one after the other.
struct Places {
  std::size_t bytes = 0;
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = bytes;
    bytes += (count * sizeof(T) + 255) / 256 * 256;
    return at;
  }
};

class Image {
 public:
  Image(const Arrays& a, int rank) {
    const TableParts& s = a.sizes;
    // What an operator is told besides the arrays, so that layouts with equal arrays are told apart.
    const std::int64_t numbers[] = {rank,        s.ranks,       s.per_node,     s.samples,   s.dim,
                                    s.indices,   s.most_shards, s.most_indices, s.most_rows, s.squares,
                                    s.at_tables, s.at_samples,  s.words};
    sizes_ = add(std::vector<std::int64_t>(std::begin(numbers), std::end(numbers)));
    parts_ = add(a.parts);
    replicated_ = add(a.replicated);
    joined_ = add(a.joined);
    columns_ = add(a.columns);
    vectors_ = add(a.vectors);
    first_ = add(a.first);
    of_table_ = add(a.of_table);
    counts_ = add(a.counts);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] TableParts at(const std::byte* base, const Arrays& a, int rank) const {
    TableParts out = a.sizes;
    out.parts = reinterpret_cast<const TablePart*>(base + parts_);
    out.own = out.parts + a.first[static_cast<std::size_t>(rank)];
    out.replicated = reinterpret_cast<const TablePart*>(base + replicated_);
    out.joined = reinterpret_cast<const JoinedPart*>(base + joined_);
    out.columns = reinterpret_cast<const std::int64_t*>(base + columns_);
    out.vectors = reinterpret_cast<const std::int64_t*>(base + vectors_);
    out.first = reinterpret_cast<const std::int32_t*>(base + first_);
    out.of_table = reinterpret_cast<const std::int32_t*>(base + of_table_);
    out.counts = reinterpret_cast<const std::int32_t*>(base + counts_);
    return out;
  }

 private:
  template <class T>
  std::size_t add(const std::vector<T>& from) {
    const std::size_t at = places_.add<T>(from.size());
    bytes_.resize(places_.bytes);
    if (!from.empty()) std::memcpy(bytes_.data() + at, from.data(), from.size() * sizeof(T));
    return at;
  }
  Places places_;
  std::vector<std::byte> bytes_;
  std::size_t sizes_ = 0, parts_ = 0, replicated_ = 0, joined_ = 0, columns_ = 0, vectors_ = 0;
  std::size_t first_ = 0, of_table_ = 0, counts_ = 0;
};

/// Words that a scan of this many items needs.
std::size_t sums_of(std::size_t items) {
  return items / static_cast<std::size_t>(kTableTile) + 2;
}

DeviceMemory make_room(const TableParts& parts, TableRoom& room) {
  const auto bags = static_cast<std::size_t>(parts.bags());
  Places places;
  const std::size_t starts = places.add<std::int32_t>(bags + 1);
  const std::size_t sums = places.add<std::int32_t>(sums_of(bags));
  DeviceMemory memory(places.bytes, "allocating room for operators on embedding tables");
  auto* const base = static_cast<std::byte*>(memory.data());
  room.starts = reinterpret_cast<std::int32_t*>(base + starts);
  room.sums = reinterpret_cast<std::int32_t*>(base + sums);
  return memory;
}

DeviceMemory make_merging(const TableParts& parts, TableRoom& room) {
  const auto lookups = static_cast<std::size_t>(std::max(parts.lookups(), parts.samples * parts.replicated_lookups));
  const std::size_t tiles = lookups / static_cast<std::size_t>(kTableTile) + 1;
  const std::size_t longest = std::max({static_cast<std::size_t>(parts.bags()), lookups, tiles * kDigits});
  Places places;
  const std::size_t sums = places.add<std::int32_t>(sums_of(longest));
  const std::size_t keys[] = {places.add<std::uint32_t>(lookups), places.add<std::uint32_t>(lookups)};
  const std::size_t samples[] = {places.add<std::int32_t>(lookups), places.add<std::int32_t>(lookups)};
  const std::size_t weighted = parts.words == 2 ? lookups : 0;
  const std::size_t weights[] = {places.add<float>(weighted), places.add<float>(weighted)};
  const std::size_t digits = places.add<std::int32_t>(tiles * kDigits + 1);
  const std::size_t before = places.add<std::int32_t>(lookups + 1);
  const std::size_t groups = places.add<std::int32_t>(lookups + 1);
  const std::size_t squares = places.add<double>(lookups);
  const std::size_t partials = places.add<double>(kTablePartials);
  DeviceMemory memory(places.bytes, "allocating room for merging rows of embedding tables");
  auto* const base = static_cast<std::byte*>(memory.data());
  const auto words = [&](std::size_t at) { return reinterpret_cast<std::int32_t*>(base + at); };
  room.sums = words(sums);
  for (std::size_t i = 0; i < 2; ++i) {
    room.keys[i] = reinterpret_cast<std::uint32_t*>(base + keys[i]);
    room.samples[i] = words(samples[i]);
    room.weights[i] = weighted > 0 ? reinterpret_cast<float*>(base + weights[i]) : nullptr;
  }
  room.digits = words(digits);
  room.before = words(before);
  room.groups = words(groups);
  room.squares = reinterpret_cast<double*>(base + squares);
  room.partials = reinterpret_cast<double*>(base + partials);
  return memory;
}

}  // namespace

const TableLayouts::Found& TableLayouts::find(const TableLayout& layout, int rank, bool merges, cudaStream_t stream) {
  Arrays arrays;
  add_parts(arrays, layout);
  add_ranks(arrays, layout, rank);
  add_sizes(arrays, layout, rank);
  const Image image(arrays, rank);
  const auto same = [&](const auto& one) { return one->image == image.bytes(); };
  auto found = std::find_if(kept_.begin(), kept_.end(), same);
  if (found == kept_.end()) {
    auto kept = std::make_unique<Kept>();
    kept->image = image.bytes();
    kept->memory = DeviceMemory(kept->image.size(), "allocating a layout of embedding tables");
    check(cudaMemcpyAsync(kept->memory.data(), kept->image.data(), kept->image.size(), cudaMemcpyHostToDevice, stream),
          "copying a layout of embedding tables");
    kept->found.parts = image.at(static_cast<const std::byte*>(kept->memory.data()), arrays, rank);
    kept->room = make_room(kept->found.parts, kept->found.room);
    kept_.push_back(std::move(kept));
    found = kept_.end() - 1;
  }
  Kept& kept = **found;
  if (merges && kept.merging.bytes() == 0) kept.merging = make_merging(kept.found.parts, kept.found.room);
  return kept.found;
}

std::int64_t TableLayouts::bytes() const {
  std::size_t total = 0;
  for (const auto& kept : kept_) total += kept->memory.bytes() + kept->room.bytes() + kept->merging.bytes();
  return static_cast<std::int64_t>(total);
}

}  // namespace orrery::exec::cuda
