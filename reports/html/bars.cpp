/// Horizontal bars below the names of their rows.
#include "reports/html/bars.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "reports/html/chart_template.h"

namespace orrery::reports::html {

std::string bars_spec(const std::vector<BarRow>& rows, const std::vector<RowBar>& bars, const BarAxis& axis,
                      int height) {
  json values = json::array(), names = json::array();
  for (const RowBar& bar : bars)
    values.push_back({{"row", bar.row},
                      {"a", bar.from},
                      {"b", bar.to},
                      {"top", bar.top},
                      {"bottom", bar.bottom},
                      {"c", bar.colour},
                      {"tip", bar.tip}});
  for (std::size_t i = 0; i < rows.size(); ++i)
    names.push_back({{"row", i}, {"name", rows[i].name}, {"value", rows[i].value}});
  return chart_spec("bars", {{"rows", std::move(names)}, {"bars", std::move(values)}},
                    {{"bar", height}, {"extent", {axis.low, axis.high}}, {"title", axis.title}});
}

}  // namespace orrery::reports::html
