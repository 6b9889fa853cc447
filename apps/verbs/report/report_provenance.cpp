// Sources of what a report shows: inputs with their hashes, versions, sources of numbers. The machine that makes the
// report is not among them: nothing depends on it, and the same inputs give the same page everywhere.
#include <fmt/format.h>

#include "apps/files.h"
#include "apps/input_kinds.h"
#include "apps/inputs.h"
#include "apps/verbs/report/report_options.h"
#include "apps/verbs/report/report_plan.h"
#include "base/sha256.h"
#include "exec/launch/supervise.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostHashed = std::size_t{1} << 30;

/// "sha256 9f2c…" of a file or of standard input, unless it cannot be read.
std::string hash_of(const std::string& file) {
  const auto text = read_argument(file, kMostHashed);
  return text ? "sha256 " + base::sha256(*text) : "not read";
}

void add_input(std::vector<reports::Provenance>& lines, const char* what, const std::string& file) {
  lines.push_back({what, hash_of(file), file == kStandardInput ? "standard input" : file});
}

const char* name_of_input(InputKind kind) {
  return kind == InputKind::job ? "job" : kind == InputKind::printed ? "prediction" : "plan";
}

void add_run(std::vector<reports::Provenance>& lines, const std::string& directory) {
  for (const char* name : {"plan.yaml", "metrics.jsonl", "timeline.json"}) {
    const fs::path file = fs::path(directory) / name;
    lines.push_back({std::string("run: ") + name, hash_of(file.string()), file.string()});
  }
  if (const auto record = exec::read_completion(directory)) lines.push_back({"run: on", record->device, directory});
}

/// What the plan's numbers rest on besides its coefficients.
void add_sources(std::vector<reports::Provenance>& lines, const LoadedPlan& shown) {
  const clusters::Cluster& cluster = shown.file.cluster;
  lines.push_back({"model", shown.file.model.name, fmt::format("{}", fmt::join(shown.file.model.sources, "; "))});
  lines.push_back({"cluster", cluster.name, fmt::format("{}", fmt::join(cluster.sources, "; "))});
  lines.push_back({"device", cluster.device().name, fmt::format("{}", fmt::join(cluster.device().sources, "; "))});
  lines.push_back({"software", shown.stack.name, ""});
}

}  // namespace

std::vector<reports::Provenance> provenance_of(const ReportOptions& options, const Context& context,
                                               const LoadedPlan* shown) {
  std::vector<reports::Provenance> lines{{"orrery", ORRERY_VERSION, {}}};
  for (const auto* inputs : {&options.inputs, &options.held_out})
    for (const std::string& one : *inputs) {
      std::error_code error;
      if (fs::is_directory(one, error))
        add_run(lines, one);
      else
        add_input(lines, name_of_input(kind_of_input(one)), one);
    }
  for (const std::string& file : options.calibrations) add_input(lines, "calibration", file);
  if (!options.job.empty()) add_input(lines, "job", options.job);
  for (const std::string& job : options.scaling) add_input(lines, "scaling", job);
  for (const std::string& rows : options.measured) add_input(lines, "measured", rows);
  if (shown != nullptr) add_sources(lines, *shown);
  for (const fs::path& root : context.catalog.added()) lines.push_back({"catalogue", root.string(), {}});
  return lines;
}

}  // namespace orrery::apps
