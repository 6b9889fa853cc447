#pragma once
/// Small multiples: panels side by side in one specification. Private to reports/html/.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reports/html/chart.h"

namespace orrery::reports::html {

/// A row of the data set `panels` of a template: the panel at `place` of `count`, with a title that fits above it, and
/// the whole title in two lines for a page so narrow that panels stand below each other. The caller adds what the
/// panel shows. How many stand side by side the template says: three at most, fewer where the page is narrow.
[[nodiscard]] json panel_row(std::size_t place, std::size_t count, const std::string& title);

}  // namespace orrery::reports::html
