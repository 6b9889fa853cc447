/// The placement of embedding tables, as torchrec's planner prints it.
#include "base/units.h"
#include "reports/tables/tables.h"

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
  table.columns = {{"table", Align::left},
                   {"rows", Align::right, 0, 7},
                   {"sharding", Align::left},
                   {"ranks", Align::left, kPlaceWidth},
                   {"compute", Align::right, 0, 2},
                   {"comms", Align::right, 0, 3},
                   {"bytes of a part", Align::right, 0, 5}};
  const bool far = std::any_of(prediction.tables.begin(), prediction.tables.end(),
                               [](const cost::TableRow& row) { return row.tier != "device"; });
  if (far)
    for (const Column& more : {Column{"memory"}, Column{"cache", Align::right, 0, 4},
                               Column{"hit rate", Align::right, 0, 1}, Column{"fetched", Align::right, 0, 6}})
      table.columns.push_back(more);
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
    table.notes.push_back(
        fmt::format("and {}, listed by --json",
                    count_text(static_cast<std::int64_t>(prediction.tables.size() - shown), "more table")));
  if (prediction.placement_gap)
    table.notes.push_back(fmt::format(
        "the most loaded rank has at most {} more than the least that any placement could have, by the planner's loads",
        percent(std::max(0.0, *prediction.placement_gap))));
  return table;
}

}  // namespace orrery::reports
