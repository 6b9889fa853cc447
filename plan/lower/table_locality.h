#pragma once
/// How many of a step's lookups touch a row for the first time (later ones hit a cache), and how full messages are.
#include <cstdint>

#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// The most distinct rows that the expected lookups of one rank can touch, on the rank with the most, and never more
/// than a table has. A bound for any distribution of indices: skewed ones touch fewer.
[[nodiscard]] std::int64_t most_distinct_rows(const TableLayout& layout);
/// The same for replicated tables.
[[nodiscard]] std::int64_t distinct_replicated_rows(const TableLayout& layout);

/// The share of a message's room in each slot that the mean rank fills; and the share over the slots of all ways.
[[nodiscard]] double mean_slot_share(const TableLayout& layout, PooledWay way, PooledType type);
[[nodiscard]] double mean_share(const TableLayout& layout, PooledEnd end, PooledType type);
[[nodiscard]] double mean_index_share(const TableLayout& layout);
/// Whether the slots of pooled vectors have the same length on all ranks.
[[nodiscard]] bool alike(const TableLayout& layout, PooledWay way, PooledType type);
/// Expected lookups of a rank in the tables that every rank has.
[[nodiscard]] std::int64_t replicated_lookups(const TableLayout& layout);

}  // namespace orrery::plan
