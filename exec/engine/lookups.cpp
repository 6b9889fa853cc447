// Indices against the rows of their tables.
#include "exec/engine/lookups.h"

#include <fmt/core.h>

#include "exec/failure.h"

namespace orrery::exec {

void check_lookup(const plan::TableLayout& layout, int table, std::int64_t sample, std::int64_t index) {
  const std::int64_t rows = layout.tables[static_cast<std::size_t>(table)].rows;
  if (index >= 0 && index < rows) return;
  throw Failure(
      fmt::format("sample {} of the batch looks up row {} of table {}, which has {}", sample, index, table, rows),
      FailureKind::input);
}

std::int64_t bag_length(const plan::TableLayout& layout, int table, const std::int32_t* bag) {
  const plan::TableLayout::Table& of = layout.tables[static_cast<std::size_t>(table)];
  std::int64_t length = 0;
  while (length < of.multi_hot && (!of.varies || bag[length * layout.words] != -1)) ++length;
  return length;
}

void check_lookups(const plan::TableLayout& layout, std::span<const std::int32_t> indices) {
  for (std::int64_t sample = 0; sample < layout.samples; ++sample)
    for (std::size_t table = 0; table < layout.tables.size(); ++table) {
      const std::int32_t* const bag =
          indices.data() + (sample * layout.indices + layout.tables[table].first_index) * layout.words;
      const std::int64_t length = bag_length(layout, static_cast<int>(table), bag);
      for (std::int64_t j = 0; j < length; ++j)
        check_lookup(layout, static_cast<int>(table), sample, bag[j * layout.words]);
    }
}

}  // namespace orrery::exec
