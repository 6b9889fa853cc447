#pragma once
/// Tables outside the device's memory: their buffers, and how their rows come to its cache and go again. Private to
/// plan/.
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Buffers that last: values and states of tables on the host and on NVMe, and the books of the caches.
void declare_far_tables(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec);

/// What a step looks up, as received; whether it changes those rows.
struct LookedUp {
  int lengths = -1, bags = -1;
  bool changes = true;
};
/// As soon as the indices are there: a step finds a place for each row; rows that lose theirs are written back where
/// they have changed, then those that are missing are fetched; on the way to and from NVMe they stand in the host's
/// memory. What was looked up longest ago loses its place (LRU): no counts of all rows are kept, and what it finds is
/// known from the rows' frequencies alone (plan/spec/table_hits.h). The copies are waited for by whoever reads the
/// tables; `until` takes the buffers that stay till then. Returns the buffer of places, laid out as the indices.
[[nodiscard]] int fetch_rows(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec,
                             const LookedUp& looked_up, std::vector<int>& until);

}  // namespace orrery::plan
