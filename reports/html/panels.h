#pragma once
/// Small multiples: panels side by side in one specification. Private to reports/html/.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reports/html/chart.h"

namespace orrery::reports::html {

/// Where panels of one height go: three side by side at most, fewer where the page is narrow.
struct Panels {
  /// `left`: pixels that the labels of a panel's axis need.
  Panels(std::size_t count, int height, int left = 0);
  std::size_t count, columns;
  int height, left;
};
/// A specification for them; the signal `panel` is the width of one, `columns` how many stand side by side.
[[nodiscard]] json panels_spec(const Panels& panels);
/// Adds the next panel: a group to which the caller adds data, scales, axes and marks.
[[nodiscard]] json& add_panel(json& spec, const Panels& panels, const std::string& title);
}  // namespace orrery::reports::html
