/// Stacked bars: where a step's time goes, and memory by stage against capacity.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/tables.h"

namespace orrery::reports::html {
namespace {

constexpr int kBarHeight = 46;
constexpr double kCapacityShown = 0.2;  // draw the capacity line if the fullest stage fills at least this much

/// Colours of the parts of a breakdown, in the order of parts_of, and of text on them: white on the dark hues, the
/// page's own on greys, dark on the light hues.
struct PartColour {
  const char *fill, *ink;
};
constexpr std::array kPartColours{PartColour{"forward", "on-forward"},
                                  PartColour{"backward", "on-backward"},
                                  PartColour{"recompute", "on-forward"},
                                  PartColour{"optimizer", "on-backward"},
                                  PartColour{"communication", "on-forward"},
                                  PartColour{"communication-4", "on-backward"},
                                  PartColour{"communication-2", "on-forward"},
                                  PartColour{"communication-3", "on-forward"},
                                  PartColour{"copies", "on-forward"},
                                  PartColour{"contention", "on-backward"},
                                  PartColour{"waiting", "ink"},
                                  PartColour{"imbalance", "on-forward"},
                                  PartColour{"other", "ink"}};

std::string variable(const char* name) {
  return fmt::format("var(--{})", name);
}
std::string part_colour(std::size_t part) {
  return variable(kPartColours.at(part).fill);
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

/// Segments of one horizontal bar, each with its start and end.
void add_segments(json& values, const std::string& bar, const std::vector<Part>& parts, const Unit& unit) {
  double total = 0, at = 0;
  for (const Part& part : parts) total += part.seconds;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].seconds <= 0) continue;
    const double end = at + parts[i].seconds;
    const std::string share = percent(total > 0 ? parts[i].seconds / total : 0);
    values.push_back({{"bar", bar},
                      {"a", at * unit.factor},
                      {"b", end * unit.factor},
                      {"c", part_colour(i)},
                      {"on", variable(kPartColours.at(i).ink)},
                      {"share", fmt::format("{:.0f} %", total > 0 ? 100 * parts[i].seconds / total : 0)},
                      {"tip", fmt::format("{}\n{} ({})", parts[i].name, time_text(parts[i].seconds), share)}});
    at = end;
  }
}

}  // namespace

Chart breakdown_chart(const cost::Breakdown& predicted, const std::optional<cost::Breakdown>& measured) {
  Chart chart;
  chart.title = "Where the step goes";
  chart.text = "Mean over ranks. Communication counts only while no compute runs; the parts add up to the step.";
  double longest = 0;
  json bars = json::array({"Predicted"});
  const std::vector<Part> left = parts_of(predicted);
  std::vector<Part> right;
  if (measured) {
    right = parts_of(*measured);
    bars.push_back("Measured");
  }
  for (const std::vector<Part>* parts : {&left, static_cast<const std::vector<Part>*>(&right)}) {
    double sum = 0;
    for (const Part& part : *parts) sum += part.seconds;
    longest = std::max(longest, sum);
  }
  const Unit unit = time_unit(longest);
  json values = json::array();
  add_segments(values, "Predicted", left, unit);
  if (measured) add_segments(values, "Measured", right, unit);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].seconds > 0 || (measured && right[i].seconds > 0))
      chart.legend.push_back({left[i].name, part_colour(i)});
    if (left[i].seconds > 0) chart.description += fmt::format("{} {}, ", left[i].name, time_text(left[i].seconds));
  }
  const int height = kBarHeight * static_cast<int>(bars.size());
  json spec = base_spec(height, {label_width({"Predicted"}), 20, 6, 48});
  json scales = json::parse(R"json([
      {"name": "x", "type": "linear", "range": "width", "nice": false, "zero": true},
      {"name": "y", "type": "band", "paddingInner": 0.32, "paddingOuter": 0.16}
    ])json");
  scales[0]["domain"] = {0, longest * unit.factor};
  scales[1]["domain"] = bars;
  scales[1]["range"] = {0, height};
  spec["scales"] = scales;
  spec["axes"] = json::parse(R"json([
      {
        "orient": "bottom", "scale": "x", "grid": true, "domain": false,
        "tickCount": {"signal": "max(4, width / 110)"}
      },
      {
        "orient": "left", "scale": "y", "domain": false, "ticks": false, "labelColor": "var(--ink)",
        "labelPadding": 8
      }
    ])json");
  spec["axes"][0]["title"] = "time (" + unit.name + ")";
  spec["data"].push_back({{"name", "parts"}, {"values", std::move(values)}});
  spec["marks"] = json::parse(R"json([
      {
        "type": "rect", "from": {"data": "parts"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "a"}, "x2": {"scale": "x", "field": "b"},
            "y": {"scale": "y", "field": "bar"}, "height": {"scale": "y", "band": 1}, "fill": {"field": "c"},
            "stroke": {"value": "var(--paper)"}, "strokeWidth": {"value": 1}, "tooltip": {"field": "tip"},
            "fillOpacity": {"value": 1}
          },
          "hover": {"fillOpacity": {"value": 0.75}}
        }
      },
      {
        "type": "text", "from": {"data": "parts"}, "interactive": false,
        "encode": {
          "update": {
            "x": {"signal": "(scale('x', datum.a) + scale('x', datum.b)) / 2"},
            "y": {"scale": "y", "field": "bar", "band": 0.5}, "align": {"value": "center"},
            "baseline": {"value": "middle"}, "text": {"field": "share"}, "fill": {"field": "on"},
            "opacity": {"signal": "scale('x', datum.b) - scale('x', datum.a) > 38 ? 1 : 0"}
          }
        }
      }
    ])json");
  Table table = breakdown_table(predicted, measured ? &*measured : nullptr);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

Chart memory_chart(const cost::Prediction& prediction, const std::vector<MeasuredMemory>& measured) {
  Chart chart;
  chart.title = "Memory by stage";
  double fullest = 0;
  for (const cost::MemoryRow& row : prediction.memory) fullest = std::max(fullest, row.total);
  for (const MeasuredMemory& m : measured) fullest = std::max(fullest, m.bytes);
  const double capacity = prediction.memory_capacity_bytes;
  const bool line = capacity > 0 && fullest >= kCapacityShown * capacity;
  const double top = (line ? std::max(fullest, capacity) : fullest) * 1.06;
  const Unit unit = byte_unit(fullest);
  chart.text = "Predicted bytes of each stage's fullest rank at its peak, by purpose.";
  if (!measured.empty()) chart.text += " The mark shows what a run measured.";
  if (capacity > 0 && !line)
    chart.text += fmt::format(" The device holds {}, far above the chart: the fullest stage takes {} of it.",
                              base::human(base::Bytes{capacity}), percent(fullest / capacity));
  json values = json::array(), stages = json::array(), marks = json::array();
  const std::vector<std::string> purposes = purposes_in_order(prediction.memory);
  for (const cost::MemoryRow& row : prediction.memory) {
    const std::string stage = fmt::format("stage {}", row.stage);
    stages.push_back(stage);
    double at = 0;
    for (const std::string& purpose : purposes) {
      const auto found = row.by_purpose.find(purpose);
      if (found == row.by_purpose.end() || found->second <= 0) continue;
      values.push_back({{"stage", stage},
                        {"a", at * unit.factor},
                        {"b", (at + found->second) * unit.factor},
                        {"c", colour_of_purpose(purpose)},
                        {"tip", fmt::format("{}\n{} of {}", spaced(purpose), base::human(base::Bytes{found->second}),
                                            base::human(base::Bytes{row.total}))}});
      at += found->second;
    }
    chart.description += fmt::format("Stage {}: {}. ", row.stage, base::human(base::Bytes{row.total}));
  }
  for (const MeasuredMemory& m : measured)
    marks.push_back({{"stage", fmt::format("stage {}", m.stage)},
                     {"v", m.bytes * unit.factor},
                     {"tip", "measured\n" + base::human(base::Bytes{m.bytes})}});
  for (const std::string& purpose : purposes) chart.legend.push_back({spaced(purpose), colour_of_purpose(purpose)});
  if (!measured.empty()) chart.legend.push_back({"measured", "var(--ink)", "ring"});
  if (line) chart.legend.push_back({"capacity", "var(--limit)", "dashed"});

  constexpr int kHeight = 280;
  json spec = base_spec(kHeight, {72, 90, 12, 34});
  json scales = json::parse(R"json([
      {"name": "x", "type": "band", "range": "width", "paddingInner": 0.35, "paddingOuter": 0.25},
      {"name": "y", "type": "linear", "nice": false, "zero": true}
    ])json");
  scales[0]["domain"] = stages;
  scales[1]["domain"] = {0, top * unit.factor};
  scales[1]["range"] = {kHeight, 0};
  spec["scales"] = scales;
  spec["axes"] = json::parse(R"json([
      {"orient": "left", "scale": "y", "grid": true, "domain": false, "ticks": false, "tickCount": 6},
      {
        "orient": "bottom", "scale": "x", "ticks": false, "labelColor": "var(--ink)", "labelPadding": 8,
        "labelOverlap": true
      }
    ])json");
  spec["axes"][0]["title"] = "memory (" + unit.name + ")";
  spec["data"] = json::array({{{"name", "parts"}, {"values", values}}, {{"name", "measured"}, {"values", marks}}});
  spec["marks"] = json::parse(R"json([
      {
        "type": "rect", "from": {"data": "parts"},
        "encode": {
          "update": {
            "x": {"signal": "scale('x', datum.stage) + max(0, bandwidth('x') - 110) / 2"},
            "width": {"signal": "min(110, bandwidth('x'))"}, "y": {"scale": "y", "field": "b"},
            "y2": {"scale": "y", "field": "a"}, "fill": {"field": "c"}, "stroke": {"value": "var(--paper)"},
            "strokeWidth": {"value": 1}, "tooltip": {"field": "tip"}, "fillOpacity": {"value": 1}
          },
          "hover": {"fillOpacity": {"value": 0.75}}
        }
      },
      {
        "type": "symbol", "from": {"data": "measured"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "stage", "band": 0.5}, "y": {"scale": "y", "field": "v"},
            "size": {"value": 80}, "fill": {"value": "var(--paper)"}, "stroke": {"value": "var(--ink)"},
            "strokeWidth": {"value": 2}, "tooltip": {"field": "tip"}
          }
        }
      }
    ])json");
  if (line) {
    json rule = json::parse(R"json({
      "type": "rule",
      "encode": {
        "update": {
          "x": {"value": 0}, "x2": {"signal": "width"}, "stroke": {"value": "var(--limit)"},
          "strokeWidth": {"value": 1.5}, "strokeDash": {"value": [6, 4]}
        }
      }
    })json");
    rule["encode"]["update"]["y"] = {{"scale", "y"}, {"value", capacity * unit.factor}};
    json text = json::parse(R"json({
      "type": "text",
      "encode": {
        "update": {"x": {"signal": "width + 6"}, "baseline": {"value": "middle"}, "fill": {"value": "var(--limit)"}}
      }
    })json");
    text["encode"]["update"]["y"] = rule["encode"]["update"]["y"];
    text["encode"]["update"]["text"] = {{"value", base::human(base::Bytes{capacity})}};
    spec["marks"].push_back(std::move(rule));
    spec["marks"].push_back(std::move(text));
  }
  Table table = memory_table(prediction.memory, capacity);
  table.title.clear();
  chart.data = {std::move(table)};
  if (!measured.empty()) {
    Table beside{
        "Measured beside it",
        {{"stage", Align::right}, {"predicted", Align::right}, {"measured", Align::right}, {"error", Align::right}},
        {},
        {}};
    for (const MeasuredMemory& m : measured)
      for (const cost::MemoryRow& row : prediction.memory)
        if (row.stage == m.stage)
          beside.rows.push_back({std::to_string(m.stage), base::human(base::Bytes{row.total}),
                                 base::human(base::Bytes{m.bytes}), percent(relative_error(row.total, m.bytes))});
    chart.data.push_back(std::move(beside));
  }
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

}  // namespace orrery::reports::html
