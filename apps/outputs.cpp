// Decides what may be written, and writes it.
#include "apps/outputs.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "apps/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

/// Words in the first lines of Orrery's files that no other program's files have. Prose may contain them too, so only
/// comments, and text at the start of a file, count.
constexpr std::string_view kComments[] = {
    "# A plan made by orrery:",                       // plan/spec/plan_file.cpp
    "by `orrery init`.",                              // apps/verbs/plan/init.cpp
    "ritten by `orrery probe",                        // exec/probe/cluster_file.cpp
    "Written by `orrery import`.",                    // apps/verbs/measure/import.cpp
    "Fitted by `orrery calibrate",                    // apps/verbs/measure/calibrate_rows.cpp
    "Written by `orrery validate",                    // cost/parameters/intervals.cpp
    "Written by `orrery export`",                     // reports/exports/megatron.cpp
    "# Coefficients that replace Orrery's defaults",  // cost/parameters/calibration.cpp
};
constexpr std::string_view kLines[] = {
    "A scaling study by `orrery report`.",  // reports/scaling_text.cpp
    "A report by `orrery report`.",         // reports/report_files.cpp
};
constexpr std::string_view kBeginnings[] = {
    "model,parameters,cluster,device,scaling,",     // reports/scaling_files.cpp
    "input,plan,devices,step_time_s,measured_",     // reports/report_files.cpp
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{",  // reports/trace.cpp
    "{\"format_version\":\"1.0\",\n\"origin\":\"",  // plan/schedule/timeline.cpp
};
constexpr std::string_view kAnywhere[] = {
    "Orrery</title>",              // reports/html/page.cpp
    "\"1.0\",\"scaling_study\":",  // reports/scaling_files.cpp
    "\"1.0\",\"report\":",         // reports/json.cpp
};
constexpr std::size_t kBeginning = 4096;  // bytes

std::string beginning_of(const fs::path& path, std::size_t bytes = kBeginning) {
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

base::Diagnostic refusal(const char* code, const std::string& path, std::string message, std::string help) {
  return {base::Severity::error, code, {path, 0, 0, 1}, std::move(message), std::move(help), {}};
}

}  // namespace

bool is_written_by_orrery(std::string_view beginning) {
  if (beginning.empty()) return true;
  const auto any = [](const auto& marks, auto holds) { return std::any_of(std::begin(marks), std::end(marks), holds); };
  if (any(kBeginnings, [&](std::string_view mark) { return beginning.starts_with(mark); })) return true;
  if (any(kAnywhere, [&](std::string_view mark) { return beginning.find(mark) != beginning.npos; })) return true;
  bool comments = true;  // so far
  for (std::string_view rest = beginning; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (any(kLines, [&](std::string_view mark) { return line == mark; })) return true;
    comments = comments && (line.empty() || line.front() == '#');
    if (comments && any(kComments, [&](std::string_view mark) { return line.find(mark) != line.npos; })) return true;
  }
  return false;
}

base::Diagnostics Outputs::refused(const std::vector<std::string>& paths) const {
  base::Diagnostics found;
  if (force_) return found;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code error;
    const fs::path target = fs::absolute(path, error).lexically_normal();
    const fs::path here = fs::current_path(error);
    if (const fs::path folder = target.parent_path(); !fs::exists(folder, error) && !is_below(folder, here)) {
      found.push_back(refusal("U0002", path, fmt::format("there is no folder {}", base::quoted(folder.string())),
                              "make it first; folders outside the current one are only made with --force"));
    } else if (fs::is_regular_file(target, error) && !is_written_by_orrery(beginning_of(target))) {
      found.push_back(refusal("U0003", path, fmt::format("{} exists and was not written by Orrery", base::quoted(path)),
                              "choose another name, or replace it with --force"));
    }
  }
  return found;
}

base::Diagnostics Outputs::refused_weights(const fs::path& folder) const {
  const fs::path weights = folder / "model.safetensors";
  std::error_code error;
  if (force_ || !fs::exists(weights, error)) return {};
  constexpr std::size_t kHeader = 1 << 20;  // bytes; contains the metadata
  if (beginning_of(weights, kHeader).find("\"written_by\":\"orrery export\"") != std::string::npos) return {};
  return {refusal("U0003", weights.string(), "these weights were not written by Orrery",
                  "choose another folder, or replace them with --force")};
}

void Outputs::write(const fs::path& path, std::string_view text) const {
  if (!dry_run_) write_file(path, text);
}

}  // namespace orrery::apps
