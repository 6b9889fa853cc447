/// Writes a report of the sample records: make_sample_report LIBRARY_FOLDER OUTPUT [plan|templates|figures]; `plan`: a
/// plan's page beside another's, with a search and a whole run, in place of runs; `templates`: each template of a chart
/// with its own sample; `figures`: what the plan's page shows, as JSON. For the browser test, and to look at a report
/// while changing it.
#include <fstream>
#include <iostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "reports/html/page.h"
#include "reports/json.h"
#include "reports/report.h"
#include "tests/reports/sample.h"

int main(int argc, char** argv) {
  using namespace orrery;
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: make_sample_report LIBRARY_FOLDER OUTPUT [plan|templates|figures]\n";
    return 2;
  }
  reports::ChartLibrary library;
  library.version = "libjs-vega";
  for (const std::string& name : reports::chart_library_files()) {
    std::ifstream file(std::string(argv[1]) + "/" + name, std::ios::binary);
    if (!file) {
      std::cerr << "missing: " << argv[1] << "/" << name << "\n";
      return 6;
    }
    std::ostringstream text;
    text << file.rdbuf();
    library.parts.push_back(text.str());
  }
  if (argc == 4 && std::string(argv[3]) == "templates") {
    std::string body;
    int number = 0;
    for (const std::string& name : sample::chart_names())
      body += reports::html::figure_html(sample::chart_of_its_sample(name), ++number, true);
    std::ofstream(argv[2], std::ios::binary) << reports::html::page_html("Templates", "", body, library);
    return 0;
  }
  reports::ReportData data = sample::report();
  if (argc == 4) {
    data = sample::plan_report();
    data.compared = sample::compared();
    data.whole_run = sample::whole_run();
    data.search = sample::search();
    data.search_heading = data.page->heading;
    data.page->trace = "{}";
    if (std::string(argv[3]) == "figures") {
      std::ofstream(argv[2]) << nlohmann::json{{"plan", reports::plan_page_json(*data.prediction, *data.page)},
                                               {"search", reports::plan_json(*data.search)}};
      return 0;
    }
  }
  std::ofstream(argv[2], std::ios::binary) << reports::report_html(data, library);
  return 0;
}
