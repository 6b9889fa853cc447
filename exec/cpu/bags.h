#pragma once
/// A step's indices as a rank received them: bags of each member's samples, shard by shard.
#include <cstdint>
#include <vector>

#include "exec/cpu/machine.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {

/// Where the bag of (member, sample) begins in a shard's run of indices, over all members.
struct Bags {
  const std::int32_t* lengths = nullptr;
  const std::int32_t* values = nullptr;
  std::int64_t members = 0, samples = 0, most_shards = 0, room = 0;
  std::int64_t first = 0, last = 0;  ///< members whose bags the operator takes: all, or one for an update in turns

  [[nodiscard]] const std::int32_t* lengths_of(std::int64_t member, std::int64_t shard) const {
    return lengths + (member * most_shards + shard) * samples;
  }
};
/// Inputs 0 and 1 of the call: lengths and indices.
[[nodiscard]] Bags bags_of(const Call& call, const plan::TableLayout& layout);

/// The first index of each (member, shard) run, members outermost.
[[nodiscard]] std::vector<std::int64_t> run_starts(const Bags& bags, std::int64_t shards);

/// Checks that a run's rows are below `rows`, before any of them is touched.
void check_rows(const std::int32_t* first, const std::int32_t* last, std::int64_t rows);

}  // namespace orrery::exec
