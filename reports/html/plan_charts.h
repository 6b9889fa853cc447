#pragma once
/// Charts of a plan's page, of comparisons and of whole runs. Each requires the part of the data that it shows.
#include "reports/explanation.h"
#include "reports/html/chart.h"
#include "reports/plan_page.h"

namespace orrery::reports::html {

[[nodiscard]] Chart waterfall_chart(const std::vector<WaterfallPart>& parts);
[[nodiscard]] Chart tornado_chart(const PlanPage& page, const cost::Prediction& own);
[[nodiscard]] Chart roofline_chart(const cost::Operators& operators);
[[nodiscard]] Chart links_chart(const std::vector<cost::LinkRow>& links);
[[nodiscard]] Chart topology_chart(const Topology& topology, const std::string& cluster);
/// Plans by memory and step time; rows of the chart's table can be pinned.
[[nodiscard]] Chart pareto_chart(const cost::SearchResult& search, const PlanHeading& heading);

[[nodiscard]] Chart compared_breakdown_chart(const std::vector<Compared>& all);
/// Their steps on one time axis; nothing where fewer than two have a timeline.
[[nodiscard]] std::optional<Chart> compared_timelines_chart(const std::vector<Compared>& all);
[[nodiscard]] Chart compared_memory_chart(const std::vector<Compared>& all);

[[nodiscard]] Chart goodput_chart(const WholeRun& run);

}  // namespace orrery::reports::html
