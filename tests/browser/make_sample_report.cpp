/// Writes a report of the sample records: make_sample_report LIBRARY_FOLDER OUTPUT.html. For the browser test, and to
/// look at a report while changing it.
#include <fstream>
#include <iostream>
#include <sstream>

#include "reports/report.h"
#include "tests/reports/sample.h"

int main(int argc, char** argv) {
  using namespace orrery;
  if (argc != 3) {
    std::cerr << "usage: make_sample_report LIBRARY_FOLDER OUTPUT.html\n";
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
  std::ofstream(argv[2], std::ios::binary) << reports::report_html(sample::report(), library);
  return 0;
}
