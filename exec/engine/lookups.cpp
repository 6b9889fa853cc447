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

void check_lookups(const plan::TableLayout& layout, std::span<const std::int32_t> indices) {
  std::size_t at = 0;
  for (std::int64_t sample = 0; sample < layout.samples; ++sample)
    for (std::size_t table = 0; table < layout.tables.size(); ++table)
      for (std::int64_t j = 0; j < layout.tables[table].multi_hot; ++j, ++at)
        check_lookup(layout, static_cast<int>(table), sample, indices[at]);
}

}  // namespace orrery::exec
