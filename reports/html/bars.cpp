/// Horizontal bars below the names of their rows.
#include "reports/html/bars.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace orrery::reports::html {

std::string bars_spec(const std::vector<BarRow>& rows, const std::vector<RowBar>& bars, const BarAxis& axis,
                      int height) {
  constexpr int kName = 19, kGap = 9;  // pixels of a row's name, and below its bars
  const int pitch = kName + height + kGap;
  const int all = pitch * static_cast<int>(rows.size());
  json values = json::array(), names = json::array();
  for (const RowBar& bar : bars) {
    const double begin = static_cast<double>(bar.row) * pitch + kName;
    values.push_back({{"a", bar.from},
                      {"b", bar.to},
                      {"y", begin + bar.top * height},
                      {"h", (bar.bottom - bar.top) * height},
                      {"c", bar.colour},
                      {"tip", bar.tip}});
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    names.push_back(
        {{"y", static_cast<double>(i) * pitch + kName - 5}, {"name", rows[i].name}, {"value", rows[i].value}});
  json spec = base_spec(all, {8, 20, 2, 48});
  spec["scales"] =
      json::parse(R"json([{"name": "x", "type": "linear", "range": "width", "nice": false, "zero": false}])json");
  spec["scales"][0]["domain"] = {axis.low, axis.high};
  spec["axes"] = json::parse(R"json([
      {
        "orient": "bottom", "scale": "x", "grid": true, "domain": false, "labelOverlap": true,
        "tickCount": {"signal": "max(3, width / 110)"}
      }
    ])json");
  spec["axes"][0]["title"] = axis.title;
  if (!axis.format.empty()) spec["axes"][0]["format"] = axis.format;
  spec["data"] = json::array({{{"name", "bars"}, {"values", values}}, {{"name", "names"}, {"values", names}}});
  spec["marks"] = json::parse(R"json([
      {
        "type": "rect", "from": {"data": "bars"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "a"}, "x2": {"scale": "x", "field": "b"}, "y": {"field": "y"},
            "height": {"field": "h"}, "fill": {"field": "c"}, "tooltip": {"field": "tip"}, "fillOpacity": {"value": 1}
          },
          "hover": {"fillOpacity": {"value": 0.75}}
        }
      },
      {
        "type": "text", "from": {"data": "names"}, "interactive": false,
        "encode": {"update": {
          "x": {"value": 0}, "y": {"field": "y"}, "text": {"field": "name"}, "limit": {"signal": "width - 74"}
        }}
      },
      {
        "type": "text", "from": {"data": "names"}, "interactive": false,
        "encode": {"update": {
          "x": {"signal": "width"}, "y": {"field": "y"}, "text": {"field": "value"}, "align": {"value": "right"},
          "fill": {"value": "var(--muted)"}
        }}
      }
    ])json");
  if (axis.ruled) {
    json rule = json::parse(R"json({
        "type": "rule", "interactive": false,
        "encode": {"update": {"y": {"value": 0}, "stroke": {"value": "var(--axis)"}}}
      })json");
    rule["encode"]["update"]["x"] = {{"scale", "x"}, {"value", axis.rule}};
    rule["encode"]["update"]["y2"] = {{"value", all}};
    spec["marks"].insert(spec["marks"].begin(), std::move(rule));  // behind bars and names
  }
  return text_of_spec(std::move(spec));
}

}  // namespace orrery::reports::html
