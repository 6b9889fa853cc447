/// The curve of the training loss.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>
#include <utility>

#include "reports/html/chart.h"
#include "reports/html/chart_template.h"

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
  chart.data = {std::move(table)};
  chart.spec = chart_spec("loss", {{"loss", std::move(values)}}, json::object());
  return chart;
}

}  // namespace orrery::reports::html
