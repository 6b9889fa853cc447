#pragma once
/// Tables as Markdown (GitHub's, which pandoc and others read too).
#include <string>
#include <string_view>

#include "reports/tables/table.h"

namespace orrery::reports {

/// Escaped text: no mark-up, no line breaks, no end of a cell.
[[nodiscard]] std::string markdown_text(std::string_view text);
/// Title in bold, the table, and its notes as a list.
[[nodiscard]] std::string markdown_of(const Table& table);

}  // namespace orrery::reports
