// Finds Debian's libjs-vega.
#include "apps/chart_library.h"

#include <filesystem>

#include "apps/files.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVega = "/usr/share/javascript/vega";
constexpr const char* kVegaLicence = "/usr/share/doc/libjs-vega/copyright";

}  // namespace

reports::ChartLibrary chart_library(base::Diagnostics& warnings) {
  reports::ChartLibrary library;
  for (const std::string& name : reports::chart_library_files()) {
    auto text = read_file(fs::path(kVega) / name);
    if (!text) {
      warnings.push_back({base::Severity::warning,
                          "R0006",
                          text.error().front().where,
                          "the charting library is missing: the report has tables only",
                          "install it: scripts/install-packages demo",
                          {}});
      return {};
    }
    library.parts.push_back(std::move(*text));
  }
  library.version = "libjs-vega (Debian)";
  library.licence = read_file(kVegaLicence).value_or("");
  return library;
}

}  // namespace orrery::apps
