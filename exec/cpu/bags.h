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
  std::int64_t members = 0, samples = 0, most_shards = 0;
  std::int64_t room = 0, words = 1;  ///< lookups of a member at most, and the words of each (TableLayout)
  std::int64_t first = 0, last = 0;  ///< members whose bags the operator takes: all, or one for an update in turns

  [[nodiscard]] const std::int32_t* lengths_of(std::int64_t member, std::int64_t shard) const {
    return lengths + (member * most_shards + shard) * samples;
  }
  /// The lookup that `start` of run_starts names.
  [[nodiscard]] const std::int32_t* lookup(std::int64_t start) const { return values + start * words; }
};
/// Inputs 0 and 1 of the call: lengths and indices.
[[nodiscard]] Bags bags_of(const Call& call, const plan::TableLayout& layout);

/// The first lookup of each (member, shard) run, members outermost.
[[nodiscard]] std::vector<std::int64_t> run_starts(const Bags& bags, std::int64_t shards);

/// Checks that the rows of lookups [first, last) are below `rows`, before any of them is touched.
void check_rows(const Bags& bags, std::int64_t first, std::int64_t last, std::int64_t rows);

}  // namespace orrery::exec
