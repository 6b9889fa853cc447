#pragma once
/// Horizontal bars below the names of their rows, so that long names have room on a narrow page.
#include <string>
#include <vector>

#include "reports/html/chart.h"

namespace orrery::reports::html {

struct RowBar {
  std::size_t row = 0;
  double from = 0, to = 0;  ///< on the axis
  std::string colour, tip;
  double top = 0, bottom = 1;  ///< shares of the row's height below its name
};
struct BarRow {
  std::string name, value;  ///< above the bars: at the left, and at the right end
};
struct BarAxis {
  std::string title;
  double low = 0, high = 1;
};
/// The specification as text: a line at 0 crosses all rows. `height`: pixels of a row's bars.
[[nodiscard]] std::string bars_spec(const std::vector<BarRow>& rows, const std::vector<RowBar>& bars,
                                    const BarAxis& axis, int height);

}  // namespace orrery::reports::html
