#pragma once
/// RowCache: which rows of a part of a table the device has, in which places, and in what order they were looked up.
/// Its books are words in a buffer of the schedule that lasts, all zero at first, so that whoever has the buffer can
/// read them. Rows that a step looks up stay until its end; else the row looked up longest ago goes first.
#include <cstdint>
#include <functional>
#include <span>

#include "plan/spec/table_layout.h"

namespace orrery::exec {

class RowCache {
 public:
  /// The books of `shard` within those of its rank.
  RowCache(std::span<std::int32_t> books, const plan::TableShard& shard);

  /// Of the step since begin_step().
  struct Counts {
    std::int64_t lookups = 0, hits = 0;     ///< hits: their row was there before the step
    std::int64_t fetched = 0, written = 0;  ///< rows
  };
  void begin_step();
  /// Counts a lookup. The place of a row that is there; -1: it is not, and is to be brought once all rows of the step
  /// have been looked up, so that none of them goes. `changes`: the step writes the row.
  [[nodiscard]] std::int32_t look_up(std::int32_t row, bool changes);
  /// A row that look_up has not found gets a place, once a step: what comes of it.
  struct Brought {
    std::int32_t place = -1;    ///< -1: all places are the step's own
    bool fetch = false;         ///< false: it has been brought already
    std::int32_t written = -1;  ///< a row that had the place and has changed; -1: none
  };
  [[nodiscard]] Brought bring(std::int32_t row, bool changes);
  /// The place of a row; -1: it has none.
  [[nodiscard]] std::int32_t place_of(std::int32_t row) const;
  [[nodiscard]] Counts counts() const;
  /// Each row that has changed since it came, with its place; then none has.
  void settle(const std::function<void(std::int32_t row, std::int32_t place)>& write);

 private:
  [[nodiscard]] std::int64_t bucket_of(std::int32_t row) const;
  void insert(std::int32_t row, std::int32_t place);
  void erase(std::int32_t row);
  void touch(std::int32_t place, bool changes);
  void unlink(std::int32_t place);
  void to_front(std::int32_t place);

  std::int64_t slots_, index_size_;
  int shift_;
  // Header: what stands where.
  enum Word : std::size_t { kUsed, kFirst, kLast, kStep, kLookups, kHits, kFetched, kWritten };
  std::int32_t* header_;
  // Of each place; neighbours are places + 1, 0: none. `touched_`: by the step that looked it up last.
  std::int32_t *row_, *newer_, *older_, *touched_, *changed_;
  std::int32_t* index_;  ///< by hash: places + 1
};

}  // namespace orrery::exec
