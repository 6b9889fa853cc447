#pragma once
/// How many of a step's lookups find their row anew, the others in a cache; and how full messages are.
#include <cstdint>

#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Rows that a rank's lookups touch at most, of the rank with most of them: no more of a table than it has rows. A
/// bound, whatever the samples' distribution; skewed ones touch fewer.
[[nodiscard]] std::int64_t most_distinct_rows(const TableLayout& layout);
/// The same of the replicated tables.
[[nodiscard]] std::int64_t distinct_replicated_rows(const TableLayout& layout);

/// Of the room that a message has in each slot, what the mean rank fills.
[[nodiscard]] double mean_slot_share(const TableLayout& layout, PooledType type);
[[nodiscard]] double mean_index_share(const TableLayout& layout);
/// Whether all ranks' slots of pooled vectors are of one length.
[[nodiscard]] bool alike(const TableLayout& layout, PooledType type);
/// Lookups of a rank in the tables that every rank has.
[[nodiscard]] std::int64_t replicated_lookups(const TableLayout& layout);

}  // namespace orrery::plan
