#pragma once
/// The charting library that reports draw with.
#include "base/result.h"
#include "reports/report.h"

namespace orrery::apps {

/// Debian's libjs-vega. Without it a report has only tables, and a warning says so.
[[nodiscard]] reports::ChartLibrary chart_library(base::Diagnostics& warnings);

}  // namespace orrery::apps
