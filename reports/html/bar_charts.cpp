/// Stacked bars: where a step's time goes, and memory by stage against capacity.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/html/chart_template.h"
#include "reports/tables/tables.h"

namespace orrery::reports::html {
namespace {

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
  Table table = breakdown_table(predicted, measured ? &*measured : nullptr);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = chart_spec("breakdown", {{"parts", std::move(values)}},
                          {{"bars", bars}, {"longest", longest * unit.factor}, {"title", "time (" + unit.name + ")"}});
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
  json limit = json::array();
  if (line) limit.push_back({{"v", capacity * unit.factor}, {"text", base::human(base::Bytes{capacity})}});
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
          beside.rows.push_back({fmt::format("{}", m.stage), base::human(base::Bytes{row.total}),
                                 base::human(base::Bytes{m.bytes}), percent(relative_error(row.total, m.bytes))});
    chart.data.push_back(std::move(beside));
  }
  chart.spec = chart_spec(
      "memory", {{"parts", std::move(values)}, {"measured", std::move(marks)}, {"capacity", std::move(limit)}},
      {{"stages", std::move(stages)}, {"top", top * unit.factor}, {"title", "memory (" + unit.name + ")"}});
  return chart;
}

}  // namespace orrery::reports::html
