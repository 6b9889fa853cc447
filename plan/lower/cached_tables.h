#pragma once
/// Tables outside the device's memory: their buffers, and how their rows move into the device's cache and back. Private
/// to plan/.
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Persistent buffers: values and states of tables on the host and on NVMe, and the books of the caches.
void declare_far_tables(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec);

/// What a step looks up, as received, and whether it changes those rows.
struct LookedUp {
  BufferId lengths, bags;
  bool changes = true;
};
/// Runs as soon as the indices are there. The step finds a place for each row. Rows that lose theirs are written back
/// if they have changed, then the missing rows are fetched; rows of NVMe pass through the host's memory. The row that
/// was looked up longest ago loses its place (LRU): this needs no counts of all rows, and its hits follow from the
/// rows' frequencies alone (plan/spec/table_hits.h). Steps that read the tables wait for the copies. The buffers that
/// must stay until then are added to `until`. Returns the buffer of places, laid out like the indices.
[[nodiscard]] BufferId fetch_rows(ClassBuilder& build, const TableLayout& layout, const PlanSpec& spec,
                                  const LookedUp& looked_up, std::vector<BufferId>& until);

}  // namespace orrery::plan
