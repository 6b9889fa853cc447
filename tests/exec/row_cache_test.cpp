// The cache of a table's rows, alone: against a list in plain sight.
#include "exec/engine/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"

namespace orrery::exec {
namespace row_cache_test {

plan::TableShard part(std::int64_t rows, std::int64_t slots) {
  plan::TableShard shard;
  shard.row_end = rows;
  shard.column_end = 4;
  shard.slots = slots;
  shard.space = plan::Space::host;
  return shard;
}

/// The same in the words of its definition: the latest row first, and what a step looks up stays.
class Plain {
 public:
  explicit Plain(std::size_t slots) : slots_(slots) {}
  struct Step {
    std::int64_t hits = 0;
    std::vector<std::int32_t> fetched, written;
  };
  Step step(const std::vector<std::int32_t>& rows, bool changes) {
    Step out;
    const std::set<std::int32_t> before(rows_.begin(), rows_.end());
    for (const std::int32_t row : rows)
      if (before.count(row) > 0) ++out.hits, to_front(row);
    for (const std::int32_t row : rows) {
      if (before.count(row) > 0) continue;
      if (std::find(rows_.begin(), rows_.end(), row) == rows_.end()) {
        out.fetched.push_back(row);
        if (rows_.size() == slots_) {
          if (changed_.erase(rows_.back()) > 0) out.written.push_back(rows_.back());
          rows_.pop_back();
        }
      }
      to_front(row);
    }
    if (changes) changed_.insert(rows.begin(), rows.end());
    return out;
  }
  [[nodiscard]] const std::set<std::int32_t>& changed() const { return changed_; }

 private:
  void to_front(std::int32_t row) {
    rows_.remove(row);
    rows_.push_front(row);
  }
  std::size_t slots_;
  std::list<std::int32_t> rows_;
  std::set<std::int32_t> changed_;
};

/// A step as the executor goes through it.
Plain::Step go(RowCache& cache, const std::vector<std::int32_t>& rows, bool changes) {
  Plain::Step out;
  std::vector<std::int32_t> missing;
  cache.begin_step();
  for (const std::int32_t row : rows)
    if (cache.look_up(row, changes) < 0) missing.push_back(row);
  for (const std::int32_t row : missing) {
    const RowCache::Brought brought = cache.bring(row, changes);
    EXPECT_EQ(cache.place_of(row), brought.place);
    if (brought.fetch) out.fetched.push_back(row);
    if (brought.written >= 0) out.written.push_back(brought.written);
  }
  out.hits = cache.counts().hits;
  return out;
}

TEST(RowCache, PutsOutTheRowThatWasLookedUpLongestAgo) {
  for (const std::int64_t slots : {std::int64_t{1}, std::int64_t{8}, std::int64_t{33}, std::int64_t{100}}) {
    const plan::TableShard shard = part(100, slots);
    std::vector<std::int32_t> books(static_cast<std::size_t>(plan::book_words(slots)));
    RowCache cache(books, shard);
    Plain plain(static_cast<std::size_t>(slots));
    std::uint64_t draw = 0;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::int32_t> rows;
      std::set<std::int32_t> distinct;
      for (int i = 0; i < 20; ++i) {
        const auto row = static_cast<std::int32_t>(base::below(97, 5, 1, draw++));
        distinct.insert(row);
        if (distinct.size() > static_cast<std::size_t>(std::min<std::int64_t>(8, slots)))
          distinct.erase(row);
        else
          rows.push_back(row);
      }
      const bool changes = step % 3 != 0;
      const Plain::Step is = go(cache, rows, changes), expected = plain.step(rows, changes);
      ASSERT_EQ(is.fetched, expected.fetched) << "step " << step << ", " << slots << " places";
      ASSERT_EQ(is.written, expected.written);
      EXPECT_EQ(is.hits, expected.hits);
      EXPECT_EQ(cache.counts().lookups, static_cast<std::int64_t>(rows.size()));
      EXPECT_EQ(cache.counts().fetched, static_cast<std::int64_t>(is.fetched.size()));
      EXPECT_EQ(cache.counts().written, static_cast<std::int64_t>(is.written.size()));
    }
    std::set<std::int32_t> settled;
    cache.settle([&](std::int32_t row, std::int32_t place) {
      EXPECT_EQ(cache.place_of(row), place);
      settled.insert(row);
    });
    EXPECT_EQ(settled, plain.changed());
    cache.settle([](std::int32_t, std::int32_t) { FAIL() << "nothing has changed since"; });
  }
}

TEST(RowCache, HasNoPlaceForMoreRowsThanAStepMayHold) {
  const plan::TableShard shard = part(100, 3);
  std::vector<std::int32_t> books(static_cast<std::size_t>(plan::book_words(3)));
  RowCache cache(books, shard);
  EXPECT_EQ(go(cache, {7, 50, 7, 99}, true).fetched, (std::vector<std::int32_t>{7, 50, 99}));
  EXPECT_EQ(cache.bring(3, true).place, -1);
  EXPECT_EQ(go(cache, {3}, true).written, std::vector<std::int32_t>{50}) << "the oldest goes with the next step";
  EXPECT_EQ(cache.place_of(50), -1);
}

}  // namespace row_cache_test
}  // namespace orrery::exec
