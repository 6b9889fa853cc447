#pragma once
/// Charts and text of a scaling study on the page.
#include <optional>
#include <string>
#include <vector>

#include "cost/scaling.h"
#include "reports/html/chart.h"

namespace orrery::reports::html {

/// Throughput per device, efficiency, device time by cause and memory over sizes, one panel per series; and a map
/// if two of model, cluster, sequence and batch are swept. Series without a plan are left out.
[[nodiscard]] std::vector<Chart> scaling_charts(const cost::ScalingStudy& study);
/// That map; none if fewer are swept.
[[nodiscard]] std::optional<Chart> scaling_map(const cost::ScalingStudy& study);
/// Money and days of a run on the budget, a line for each series; nothing without a budget or prices.
[[nodiscard]] std::optional<Chart> scaling_costs(const cost::ScalingStudy& study);
/// The text before the charts: the sizes, or the series side by side; the ways to train on a budget.
[[nodiscard]] std::string scaling_lead(const cost::ScalingStudy& study);
/// The text after the charts: what each series says in sentences, and the tables that are shown without a click.
[[nodiscard]] std::string scaling_sections(const cost::ScalingStudy& study);

}  // namespace orrery::reports::html
