#pragma once
/// Checks the rows that samples look up, before any row is read.
#include <bit>
#include <cstdint>
#include <span>

#include "plan/spec/table_layout.h"

namespace orrery::exec {

/// Throws a Failure that names sample and table if the table has no such row.
void check_lookup(const plan::TableLayout& layout, int table, std::int64_t sample, std::int64_t index);
/// The indices of a bag: all that the table's bags have, or, where they differ in length, those before the first -1.
/// `bag`: its lookups, of layout.words each.
[[nodiscard]] std::int64_t bag_length(const plan::TableLayout& layout, int table, const std::int32_t* bag);
/// The weight of a lookup of two words.
[[nodiscard]] inline float weight_of_lookup(const std::int32_t* lookup) {
  return std::bit_cast<float>(lookup[1]);
}
/// Checks a rank's samples of a step: lookups (samples, those of all tables).
void check_lookups(const plan::TableLayout& layout, std::span<const std::int32_t> indices);

}  // namespace orrery::exec
