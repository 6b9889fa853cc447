#include "reports/report.h"
namespace orrery::reports {
std::vector<std::string> chart_library_files() {
  return {};
}
std::string report_html(const ReportData&, const ChartLibrary&) {
  return {};
}
}  // namespace orrery::reports
