#pragma once
/// Checks the rows that samples look up, before any row is read.
#include <cstdint>
#include <span>

#include "plan/spec/table_layout.h"

namespace orrery::exec {

/// Throws a Failure that names sample and table if the table has no such row.
void check_lookup(const plan::TableLayout& layout, int table, std::int64_t sample, std::int64_t index);
/// The same for a rank's samples of a step: indices (samples, those of all tables).
void check_lookups(const plan::TableLayout& layout, std::span<const std::int32_t> indices);

}  // namespace orrery::exec
