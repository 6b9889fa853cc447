#pragma once
/// How many of a step's lookups touch a row for the first time (later ones hit a cache), and how full messages are.
#include <cstdint>

#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// The most distinct rows that a rank's lookups can touch, on the rank with the most; never more of a table than it
/// has. A bound for any distribution of samples: skewed ones touch fewer.
[[nodiscard]] std::int64_t most_distinct_rows(const TableLayout& layout);
/// The same for replicated tables.
[[nodiscard]] std::int64_t distinct_replicated_rows(const TableLayout& layout);

/// Of the room that a message has in each slot, what the mean rank fills; and of the slots of all ways.
[[nodiscard]] double mean_slot_share(const TableLayout& layout, PooledWay way, PooledType type);
[[nodiscard]] double mean_share(const TableLayout& layout, PooledEnd end, PooledType type);
[[nodiscard]] double mean_index_share(const TableLayout& layout);
/// Whether all ranks' slots of pooled vectors are of one length.
[[nodiscard]] bool alike(const TableLayout& layout, PooledWay way, PooledType type);
/// Lookups of a rank in the tables that every rank has.
[[nodiscard]] std::int64_t replicated_lookups(const TableLayout& layout);

}  // namespace orrery::plan
