#pragma once
/// RowCache: which rows of a part of a table are on the device, in which places, and in what order they were looked up.
/// Its books are words in a persistent buffer of the schedule, all zero at first, so that any code with the buffer can
/// read them. Rows that a step looks up stay until its end; otherwise the row that was looked up longest ago goes
/// first.
#include <cstdint>
#include <functional>
#include <span>

#include "plan/spec/table_layout.h"

namespace orrery::exec {

class RowCache {
 public:
  /// The books of `shard` within those of its rank.
  RowCache(std::span<std::int32_t> books, const plan::TableShard& shard);

  /// For the step since begin_step().
  struct Counts {
    std::int64_t lookups = 0, hits = 0;     ///< hits: rows in the cache before the step
    std::int64_t fetched = 0, written = 0;  ///< rows
  };
  void begin_step();
  /// Counts a lookup and returns the row's place, or -1 if it is missing. A missing row is brought once all rows of the
  /// step have been looked up, so that none of these is evicted. `changes`: the step writes the row.
  [[nodiscard]] std::int32_t look_up(std::int32_t row, bool changes);
  /// The result of giving a place to a row that look_up did not find; called once per step for such a row.
  struct Brought {
    std::int32_t place = -1;    ///< -1: the step itself uses all places
    bool fetch = false;         ///< false: it has been brought already
    std::int32_t written = -1;  ///< the changed row that had the place; -1: none
  };
  [[nodiscard]] Brought bring(std::int32_t row, bool changes);
  /// The place of a row; -1: it has none.
  [[nodiscard]] std::int32_t place_of(std::int32_t row) const;
  [[nodiscard]] Counts counts() const;
  /// Calls `write` for each row that has changed since it came, with its place. After that none counts as changed.
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
  // Header: the meaning of its words.
  enum Word : std::size_t { kUsed, kFirst, kLast, kStep, kLookups, kHits, kFetched, kWritten };
  std::int32_t* header_;
  // Per place; neighbours are stored as place + 1, 0: none. `touched_`: the step that last looked it up.
  std::int32_t *row_, *newer_, *older_, *touched_, *changed_;
  std::int32_t* index_;  ///< by hash: place + 1
};

}  // namespace orrery::exec
