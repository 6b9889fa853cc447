/// The placement of embedding tables, as torchrec's planner prints it.
#include "base/units.h"
#include "reports/tables.h"

#include <fmt/core.h>

#include <algorithm>

namespace orrery::reports {
namespace {

constexpr std::size_t kMostLines = 40;
constexpr std::size_t kPlaceWidth = 28;

}  // namespace

Table tables_table(const cost::Prediction& prediction) {
  Table table;
  table.title = "Tables";
  table.columns = {{"table", Align::left},           {"rows", Align::right},
                   {"sharding", Align::left},        {"ranks", Align::left, kPlaceWidth},
                   {"compute", Align::right},        {"comms", Align::right},
                   {"bytes of a part", Align::right}};
  const bool far = std::any_of(prediction.tables.begin(), prediction.tables.end(),
                               [](const cost::TableRow& row) { return row.tier != "device"; });
  if (far)
    for (const char* title : {"memory", "cache", "hit rate", "fetched"}) table.columns.push_back({title, Align::right});
  const std::size_t shown = std::min(prediction.tables.size(), kMostLines);
  for (std::size_t i = 0; i < shown; ++i) {
    const cost::TableRow& row = prediction.tables[i];
    const std::size_t space = row.place.find(' ');
    table.rows.push_back({row.table, base::human_count(static_cast<double>(row.rows)), row.sharding,
                          space == std::string::npos ? "all" : row.place.substr(space + 1), time_text(row.compute_s),
                          time_text(row.communication_s), base::human(base::Bytes{row.bytes})});
    if (!far) continue;
    const bool here = row.tier == "device";
    for (const std::string& text :
         {row.tier, here ? "" : base::human(base::Bytes{row.cache_bytes}), here ? "" : percent(row.hit_rate),
          here ? "" : base::human(base::Bytes{row.fetched_bytes})})
      table.rows.back().push_back(text);
  }
  if (shown < prediction.tables.size())
    table.notes.push_back(fmt::format("and {} more tables, which --json lists", prediction.tables.size() - shown));
  if (prediction.placement_gap)
    table.notes.push_back(fmt::format(
        "the most loaded rank has at most {} more than the least possible of any placement, in the planner's loads",
        percent(std::max(0.0, *prediction.placement_gap))));
  return table;
}

}  // namespace orrery::reports
