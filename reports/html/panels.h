#pragma once
/// Small multiples: panels side by side in one specification. Private to reports/html/.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reports/html/chart.h"

namespace orrery::reports::html {

/// The layout of panels of one height: at most three side by side.
struct Panels {
  /// `left`: pixels that the labels of a panel's axis need.
  Panels(std::size_t count, int height, int left = 0);
  std::size_t count, columns;
  int height, left;
};
/// A specification for them; its signal `panel` is the width of one.
[[nodiscard]] json panels_spec(const Panels& panels);
/// Adds the next panel: a group to which the caller adds data, scales, axes and marks.
[[nodiscard]] json& add_panel(json& spec, const Panels& panels, const std::string& title);
/// The specification as text.
[[nodiscard]] std::string text_of_spec(const json& spec);

}  // namespace orrery::reports::html
