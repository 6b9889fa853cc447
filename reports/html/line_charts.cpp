/// The curve of the training loss.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>
#include <utility>

#include "reports/html/chart.h"

namespace orrery::reports::html {
namespace {

constexpr std::size_t kMostPoints = 2000;  // of the loss curve; beyond that every n-th step

}  // namespace

Chart loss_chart(const std::vector<double>& losses) {
  Chart chart;
  chart.title = "Training loss";
  chart.text = "Mean over the tokens of each step, before its update.";
  chart.description = fmt::format("Loss {} in the first step, {} in step {}.", number(losses.front()),
                                  number(losses.back()), losses.size());
  const std::size_t stride = losses.size() / kMostPoints + 1;
  json values = json::array();
  Table table{"", {{"step", Align::right}, {"loss", Align::right}}, {}, {}};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i % stride != 0 && i + 1 != losses.size()) continue;
    if (std::isfinite(losses[i])) {
      values.push_back(
          {{"s", i + 1}, {"l", losses[i]}, {"tip", fmt::format("step {}\nloss {}", i + 1, number(losses[i]))}});
    }
    table.rows.push_back({std::to_string(i + 1), fmt::format("{:.6g}", losses[i])});
  }
  json spec = base_spec(200, {72, 20, 12, 48});
  spec["data"] = json::array({{{"name", "loss"}, {"values", values}}});
  spec["scales"] = json::parse(R"json([
      {"name": "x", "type": "linear", "range": "width", "zero": false, "domain": {"data": "loss", "field": "s"}},
      {
        "name": "y", "type": "linear", "range": [200, 0], "zero": false, "nice": true,
        "domain": {"data": "loss", "field": "l"}
      }
    ])json");
  spec["axes"] = json::parse(R"json([
      {
        "orient": "left", "scale": "y", "grid": true, "domain": false, "ticks": false, "tickCount": 5,
        "title": "loss (nats per token)"
      },
      {
        "orient": "bottom", "scale": "x", "title": "step", "format": "d", "tickMinStep": 1,
        "tickCount": {"signal": "max(4, width / 110)"}
      }
    ])json");
  spec["marks"] = json::parse(R"json([
      {
        "type": "line", "from": {"data": "loss"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "s"}, "y": {"scale": "y", "field": "l"},
            "stroke": {"value": "var(--backward)"}, "strokeWidth": {"value": 2}
          }
        }
      },
      {
        "type": "symbol", "from": {"data": "loss"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "s"}, "y": {"scale": "y", "field": "l"},
            "fill": {"value": "var(--backward)"}, "tooltip": {"field": "tip"}
          },
          "enter": {"size": {"value": 20}}
        }
      }
    ])json");
  chart.data = {std::move(table)};
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

}  // namespace orrery::reports::html
