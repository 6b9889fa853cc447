// Bags of indices.
#include "exec/cpu/bags.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ensure.h"
#include "exec/failure.h"

namespace orrery::exec {

using plan::TableLayout;

Bags bags_of(const Call& call, const TableLayout& layout) {
  Bags bags;
  bags.members = bags.last = layout.ranks;
  if (call.op.turns > 1) {
    ENSURE(call.op.turns == layout.ranks, "{} turns of {} workers", call.op.turns, layout.ranks);
    bags.first = call.op.turn;
    bags.last = bags.first + 1;
  }
  bags.samples = layout.samples;
  bags.most_shards = layout.most_shards;
  bags.room = layout.most_indices;
  bags.lengths = call.ids(0, bags.members * bags.most_shards * bags.samples);
  bags.words = layout.words;
  bags.values = call.ids(1, bags.members * bags.room * bags.words);
  return bags;
}

std::vector<std::int64_t> run_starts(const Bags& bags, std::int64_t shards) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(bags.members * (shards + 1)));
  for (std::int64_t m = 0; m < bags.members; ++m) {
    std::int64_t at = 0;
    for (std::int64_t s = 0; s < shards; ++s) {
      starts[static_cast<std::size_t>(m * (shards + 1) + s)] = m * bags.room + at;
      const std::int32_t* lengths = bags.lengths_of(m, s);
      for (std::int64_t i = 0; i < bags.samples; ++i) at += lengths[i];
    }
    starts[static_cast<std::size_t>(m * (shards + 1) + shards)] = m * bags.room + at;
    if (at > bags.room)
      throw Failure(fmt::format("{} indices from rank {}, of which a slot has room for {}", at, m, bags.room));
  }
  return starts;
}

void check_rows(const Bags& bags, std::int64_t first, std::int64_t last, std::int64_t rows) {
  std::uint32_t most = 0;  // as unsigned, a negative index is the largest
  const auto look_at = [&](std::int64_t words) {
    for (std::int64_t i = first; i < last; ++i)
      most = std::max(most, static_cast<std::uint32_t>(bags.values[i * words]));
  };
  bags.words == 1 ? look_at(1) : look_at(2);  // words that the compiler knows
  ENSURE(first == last || most < static_cast<std::uint64_t>(rows), "row {} of a part with {}",
         static_cast<std::int32_t>(most), rows);
}

}  // namespace orrery::exec
