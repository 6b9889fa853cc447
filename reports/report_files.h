#pragma once
/// A report as files other than a page: Markdown for people, CSV for spreadsheets. A scaling study has its own
/// (reports/scaling.h).
#include <string>

#include "reports/report.h"

namespace orrery::reports {

/// The page's tables, in its order.
[[nodiscard]] std::string report_markdown(const ReportData& data);
/// One line per plan, run and ranked plan of the search: its description, its predicted and measured step time, and the
/// figures that the page begins with. Units are in the heads.
[[nodiscard]] std::string report_csv(const ReportData& data);

}  // namespace orrery::reports
