// Places of rows in the caches of tables outside the device's memory.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/ensure.h"
#include "exec/cpu/bags.h"
#include "exec/cpu/machine.h"
#include "exec/engine/row_cache.h"
#include "exec/failure.h"
#include "models/recommender.h"

namespace orrery::exec {
namespace {

using plan::TableLayout;
using plan::TableShard;

/// A list for a step that copies rows: their number, then a row and a place for each.
class RowList {
 public:
  RowList() = default;
  explicit RowList(const Operand& out)
      : words_(reinterpret_cast<std::int32_t*>(out.data), static_cast<std::size_t>(out.elements)) {
    if (!words_.empty()) words_[0] = 0;
  }
  void add(std::int64_t row, std::int64_t place) {
    const auto at = static_cast<std::size_t>(1 + 2 * words_[0]++);
    ENSURE(at + 1 < words_.size(), "a list of {} words is full", words_.size());
    words_[at] = static_cast<std::int32_t>(row);
    words_[at + 1] = static_cast<std::int32_t>(place);
  }

 private:
  std::span<std::int32_t> words_;
};

[[noreturn]] void no_room(const Bags& bags, const std::vector<std::int64_t>& starts, std::int64_t shards,
                          std::int64_t s, const TableShard& shard, const Call& call) {
  std::vector<std::int32_t> rows;
  for (std::int64_t m = 0; m < bags.members; ++m) {
    const auto run = static_cast<std::size_t>(m * (shards + 1) + s);
    for (std::int64_t i = starts[run]; i < starts[run + 1]; ++i) rows.push_back(*bags.lookup(i));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  throw Failure(fmt::format("step {} looks up {} different rows of rank {}'s part of {}, whose cache has room for {}: "
                            "give it {:.2f} times the size",
                            call.context.step + 1, rows.size(), call.context.rank, models::table_name(shard.table),
                            shard.slots, static_cast<double>(rows.size()) / static_cast<double>(shard.slots)),
                FailureKind::input);
}

}  // namespace

void run_cache_rows(Machine& machine, const Call& call) {
  static_cast<void>(machine);
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank);
  const Operand& books = call.out[0];
  const std::span<std::int32_t> words(reinterpret_cast<std::int32_t*>(books.data),
                                      static_cast<std::size_t>(books.elements));
  auto* const places = reinterpret_cast<std::int32_t*>(call.out[1].data);
  const auto place = [&](std::int64_t i) -> std::int32_t& { return places[i * bags.words]; };
  std::array<RowList, plan::kSpaces> fetched, written;
  for (std::size_t space = 1; space < plan::kSpaces; ++space) {
    fetched[space] = RowList(call.out[2 * space]);
    written[space] = RowList(call.out[2 * space + 1]);
  }
  const std::vector<std::int64_t> starts = run_starts(bags, shards);
  for (std::int64_t s = 0; s < shards; ++s) {
    const TableShard& shard = layout.shards[layout.begin(rank) + static_cast<std::size_t>(s)];
    const auto space = static_cast<std::size_t>(shard.space);
    std::optional<RowCache> cache;
    if (shard.cached()) {
      cache.emplace(words, shard);
      cache->begin_step();
    }
    const auto each_lookup = [&](const auto& see) {
      for (std::int64_t m = 0; m < bags.members; ++m) {
        const auto run = static_cast<std::size_t>(m * (shards + 1) + s);
        for (std::int64_t i = starts[run]; i < starts[run + 1]; ++i) see(i, *bags.lookup(i));
      }
    };
    for (std::int64_t m = 0; m < bags.members; ++m) {
      const auto run = static_cast<std::size_t>(m * (shards + 1) + s);
      check_rows(bags, starts[run], starts[run + 1], shard.rows());
    }
    if (bags.words == 2) each_lookup([&](std::int64_t i, std::int32_t) { places[2 * i + 1] = bags.values[2 * i + 1]; });
    if (!cache) {
      each_lookup([&](std::int64_t i, std::int32_t row) { place(i) = row; });
      continue;
    }
    each_lookup([&](std::int64_t i, std::int32_t row) { place(i) = cache->look_up(row, call.op.accumulate); });
    each_lookup([&](std::int64_t i, std::int32_t row) {
      if (place(i) >= 0) return;
      const RowCache::Brought brought = cache->bring(row, call.op.accumulate);
      if (brought.place < 0) no_room(bags, starts, shards, s, shard, call);
      place(i) = brought.place;
      if (brought.written >= 0) written[space].add(shard.far_state + brought.written, shard.state + brought.place);
      if (brought.fetch) fetched[space].add(shard.far_state + row, shard.state + brought.place);
    });
  }
}

}  // namespace orrery::exec
