// Where rows begin; copies them one by one.
#include "exec/engine/row_moves.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/ensure.h"
#include "exec/engine/row_cache.h"
#include "exec/files/state_file.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

using plan::RowsAt;
using plan::TableLayout;
using plan::TableShard;

/// Runs of elements of one row's values or states.
struct Pieces {
  std::array<std::int64_t, 2> first{};
  int count = 1;
  std::int64_t width = 1;
};

/// For the buffers of values or states of one memory's tables.
class RowPlaces {
 public:
  RowPlaces(const plan::Schedule& schedule, plan::Space space, bool states)
      : layout_(*schedule.tables),
        far_(layout_.far[static_cast<std::size_t>(space)]),
        states_(states),
        by_value_(plan::traits_of(schedule.spec.states.optimizer).table_states.by_value) {}

  /// A row of the part and its place in the cache.
  [[nodiscard]] Pieces far(const TableShard& shard, std::int64_t row) const {
    return pieces(shard, shard.far_offset + row * shard.columns(), shard.far_state + row, far_.elements);
  }
  [[nodiscard]] Pieces cached(const TableShard& shard, std::int64_t place) const {
    return pieces(shard, shard.offset + place * shard.columns(), shard.state + place, layout_.most_elements);
  }
  /// The next row of those that are packed one after another.
  [[nodiscard]] Pieces packed(const TableShard& shard) {
    const Pieces out = pieces(shard, packed_values_, packed_rows_, far_.moved_elements);
    packed_values_ += shard.columns();
    ++packed_rows_;
    return out;
  }

 private:
  // Where values have states, all first ones come before the second ones.
  [[nodiscard]] Pieces pieces(const TableShard& shard, std::int64_t value, std::int64_t row,
                              std::int64_t second) const {
    if (!states_) return {{value, 0}, 1, shard.columns()};
    if (by_value_ == 0) return {{row, 0}, 1, 1};
    return {{value, second + value}, by_value_, shard.columns()};
  }
  const TableLayout& layout_;
  const TableLayout::Far& far_;
  bool states_;
  int by_value_;  // 2 at most
  std::int64_t packed_values_ = 0, packed_rows_ = 0;
};

std::span<std::int32_t> books_of(const plan::Schedule& schedule, int rank, Arena& arena) {
  const plan::RankClass& c = schedule.class_of(rank);
  const auto words = static_cast<std::size_t>(c.buffers[c.cache].elements);
  return {reinterpret_cast<std::int32_t*>(arena.data(c.cache, -1)), words};
}

}  // namespace

void move_rows(const plan::Schedule& schedule, int rank, const plan::RowMove& rows, std::span<const std::int32_t> list,
               const RowMoveEnds& ends, StateFile* file) {
  const TableLayout& layout = *schedule.tables;
  const std::int64_t size = models::size_of(ends.dtype), count = list.front();
  ENSURE(2 * count < static_cast<std::int64_t>(list.size()), "{} rows in a list of {} words", count, list.size());
  RowPlaces places(schedule, rows.far, rows.states);
  std::size_t s = layout.begin(rank);
  const auto at = [&](RowsAt end, std::int64_t row, std::int64_t place) {
    const TableShard& shard = layout.shards[s];
    if (end == RowsAt::far) return places.far(shard, row);
    return end == RowsAt::cache ? places.cached(shard, place) : places.packed(shard);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = list[static_cast<std::size_t>(1 + 2 * i)];
    const std::int64_t place = list[static_cast<std::size_t>(2 + 2 * i)];
    const auto mine = [&] {
      const TableShard& shard = layout.shards[s];
      return shard.space == rows.far && row >= shard.far_state && row < shard.far_state + shard.rows();
    };
    while (!mine()) ENSURE(++s < layout.end(rank), "row {} of no part, or out of order", row);
    const TableShard& shard = layout.shards[s];
    const Pieces from = at(rows.from, row - shard.far_state, place - shard.state);
    const Pieces to = at(rows.to, row - shard.far_state, place - shard.state);
    for (int piece = 0; piece < from.count; ++piece) {
      const auto p = static_cast<std::size_t>(piece);
      const std::byte* source = ends.from + from.first[p] * size;
      std::byte* target = ends.to + to.first[p] * size;
      const auto bytes = static_cast<std::size_t>(from.width * size);
      if (file != nullptr && rows.from == RowsAt::far)
        file->read({target, bytes}, source);
      else if (file != nullptr && rows.to == RowsAt::far)
        file->write(target, {source, bytes});
      else
        std::memcpy(target, source, bytes);
    }
  }
}

void settle_tables(const plan::Schedule& schedule, int rank, Arena& arena) {
  const plan::RankClass& c = schedule.class_of(rank);
  if (!c.cache) return;
  const TableLayout& layout = *schedule.tables;
  const std::span<std::int32_t> books = books_of(schedule, rank, arena);
  for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i) {
    const TableShard& shard = layout.shards[i];
    if (!shard.cached()) continue;
    const plan::RankClass::FarTables& far = c.far[static_cast<std::size_t>(shard.space)];
    RowCache(books, shard).settle([&](std::int32_t row, std::int32_t place) {
      for (const bool states : {false, true}) {
        const plan::BufferId here = states ? c.table_states : c.tables, there = states ? far.states : far.values;
        if (!there) continue;
        const RowPlaces places(schedule, shard.space, states);
        const Pieces from = places.cached(shard, place), to = places.far(shard, row);
        const std::int64_t size = models::size_of(c.buffers[there].dtype);
        for (int piece = 0; piece < from.count; ++piece) {
          const auto p = static_cast<std::size_t>(piece);
          std::byte* const target = arena.data(there, -1) + to.first[p] * size;
          const std::byte* const source = arena.data(here, -1) + from.first[p] * size;
          const auto bytes = static_cast<std::size_t>(from.width * size);
          if (shard.space == plan::Space::nvme)
            arena.state_file()->write(target, {source, bytes});
          else
            std::memcpy(target, source, bytes);
        }
      }
    });
  }
}

void forget_cached_rows(const plan::Schedule& schedule, int rank, Arena& arena) {
  if (!schedule.class_of(rank).cache) return;
  const std::span<std::int32_t> books = books_of(schedule, rank, arena);
  std::memset(books.data(), 0, books.size_bytes());
}

}  // namespace orrery::exec
