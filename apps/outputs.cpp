// Decides what may be written, and writes it.
#include "apps/outputs.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "apps/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

/// Words by which a kind of Orrery's files is known.
struct Mark {
  std::string_view text;
  FileKind kind;
};

/// Words in the first lines of Orrery's files that no other program's files have. Prose may contain them too, so only
/// comments, and text at the start of a file, count.
constexpr Mark kComments[] = {
    {"# A plan made by orrery:", FileKind::plan},                              // plan/spec/plan_file.cpp
    {"by `orrery init`.", FileKind::job},                                      // apps/verbs/plan/init.cpp
    {"ritten by `orrery probe", FileKind::cluster},                            // exec/probe/cluster_file.cpp
    {"# A job by `orrery import`", FileKind::job},                             // apps/verbs/measure/import_run.cpp
    {"# The model of a job by `orrery import`", FileKind::model},              // apps/verbs/measure/import_run.cpp
    {"Written by `orrery import`.", FileKind::cluster},                        // apps/verbs/measure/import.cpp
    {"Fitted by `orrery calibrate", FileKind::stack},                          // apps/verbs/measure/calibrate_rows.cpp
    {"Written by `orrery validate", FileKind::intervals},                      // cost/parameters/intervals.cpp
    {"Written by `orrery export`", FileKind::settings},                        // reports/exports/megatron.cpp
    {"# Coefficients that replace Orrery's defaults", FileKind::calibration},  // cost/parameters/calibration.cpp
};
constexpr Mark kLines[] = {
    {"A scaling study by `orrery report`.", FileKind::page},  // reports/scaling_text.cpp
    {"A report by `orrery report`.", FileKind::page},         // reports/report_files.cpp
};
constexpr Mark kBeginnings[] = {
    {"model,parameters,cluster,device,scaling,", FileKind::page},         // reports/scaling_files.cpp
    {"input,plan,devices,step_time_s,measured_", FileKind::page},         // reports/report_files.cpp
    {"{\"displayTimeUnit\":\"ms\",\"otherData\":{", FileKind::trace},     // reports/trace.cpp
    {"{\"format_version\":\"1.0\",\n\"origin\":\"", FileKind::timeline},  // plan/schedule/timeline.cpp
};
constexpr Mark kAnywhere[] = {
    {"Orrery</title>", FileKind::page},              // reports/html/page.cpp
    {"\"1.0\",\"scaling_study\":", FileKind::page},  // reports/scaling_files.cpp
    {"\"1.0\",\"report\":", FileKind::page},         // reports/json.cpp
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

/// "a plan": what a message calls a file of this kind.
const char* name_of(FileKind kind) {
  switch (kind) {
    case FileKind::plan: return "a plan";
    case FileKind::job: return "a job";
    case FileKind::cluster: return "a cluster";
    case FileKind::calibration: return "a calibration";
    case FileKind::stack: return "a software stack";
    case FileKind::intervals: return "intervals";
    case FileKind::page: return "a report";
    case FileKind::trace: return "a trace";
    case FileKind::timeline: return "a timeline";
    case FileKind::settings: return "settings of another framework";
    case FileKind::model: return "a model";
  }
  return "a file";
}

/// Whether a run has begun in this directory.
bool is_run(const fs::path& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(folder / name, error); };
  return (has("plan.yaml") || has("lock")) && (has("metrics.jsonl") || has("completed.json") || has("saved.json"));
}

/// The run directory whose files a file would lie among; empty: none. Folders of the user's below it are theirs.
fs::path run_around(const fs::path& target) {
  const fs::path folder = target.parent_path();
  if (is_run(folder)) return folder;
  for (fs::path inner = folder; inner.has_relative_path(); inner = inner.parent_path()) {
    const std::string name = inner.filename().string();
    if ((name == "checkpoints" || name == "gradients") && is_run(inner.parent_path())) return inner.parent_path();
  }
  return {};
}

base::Diagnostic refusal(const char* code, const std::string& path, std::string message, std::string help) {
  return {base::Severity::error, code, {path, 0, 0, 1}, std::move(message), std::move(help), {}};
}

}  // namespace

std::optional<FileKind> kind_of(std::string_view beginning) {
  std::optional<FileKind> found;
  const auto any = [&](const auto& marks, auto holds) {
    const auto mark = std::find_if(std::begin(marks), std::end(marks), [&](const Mark& m) { return holds(m.text); });
    if (mark != std::end(marks)) found = mark->kind;
    return found.has_value();
  };
  if (any(kBeginnings, [&](std::string_view mark) { return beginning.starts_with(mark); })) return found;
  if (any(kAnywhere, [&](std::string_view mark) { return beginning.find(mark) != beginning.npos; })) return found;
  bool comments = true;  // so far
  for (std::string_view rest = beginning; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (any(kLines, [&](std::string_view mark) { return line == mark; })) return found;
    comments = comments && (line.empty() || line.front() == '#');
    if (comments && any(kComments, [&](std::string_view mark) { return line.find(mark) != line.npos; })) return found;
  }
  return std::nullopt;
}

base::Diagnostics Outputs::refused_folder(const std::string& path) const {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).lexically_normal();
  if (force_ || fs::exists(folder, error) || is_below(folder, fs::current_path(error))) return {};
  return {refusal("U0002", path, fmt::format("there is no folder {}", base::quoted(folder.string())),
                  "make it first; folders outside the current one are only made with --force")};
}

base::Diagnostics Outputs::refused(const std::vector<OutputFile>& files, const std::vector<std::string>& inputs) const {
  base::Diagnostics found;
  std::error_code error;
  for (const auto& [path, kind, any, stream] : files) {
    if (path.empty() || (path == "-" && stream)) continue;
    if (path == "-") {
      found.push_back(refusal("U0006", path, "what this verb prints is on standard output, not the file",
                              "name a file; --json prints the result for programs"));
      continue;
    }
    const fs::path target = fs::absolute(path, error).lexically_normal();
    if (fs::is_directory(target, error)) {
      found.push_back(refusal("U0006", path,
                              fmt::format("{} is a folder, but a file is to be written", base::quoted(path)),
                              "name a file in it"));
      continue;
    }
    // Devices and pipes are written through, everything else beside the target and then renamed.
    const bool beside = !fs::exists(target, error) || fs::is_regular_file(target, error);
    if (beside && fs::exists(target.parent_path(), error) && ::access(target.parent_path().c_str(), W_OK) != 0) {
      found.push_back(refusal("U0006", path,
                              fmt::format("nothing can be written to {}: {}",
                                          base::quoted(target.parent_path().string()), std::strerror(errno)),
                              "name another place"));
      continue;
    }
    if (force_) continue;
    if (base::Diagnostics folder = refused_folder(target.parent_path().string()); !folder.empty()) {
      folder.front().where.file = path;
      found.push_back(std::move(folder.front()));
      continue;
    }
    if (const fs::path run = run_around(target); !run.empty()) {
      found.push_back(refusal("U0005", path,
                              fmt::format("{} lies in the directory of a run, {}", base::quoted(path), run.string()),
                              "choose a place outside it, or write it there with --force"));
      continue;
    }
    if (!fs::is_regular_file(target, error)) continue;
    if (std::any_of(inputs.begin(), inputs.end(), [&](const std::string& input) {
          return input != "-" && !input.empty() && fs::equivalent(input, target, error);
        })) {
      found.push_back(refusal("U0004", path,
                              fmt::format("{} is read by the same command, and would be replaced", base::quoted(path)),
                              "choose another name, or replace it with --force"));
      continue;
    }
    if (any) continue;
    const std::string text = beginning_of(target);
    const std::optional<FileKind> there = kind_of(text);
    if (text.empty() || there == kind) continue;
    found.push_back(
        refusal("U0003", path,
                there ? fmt::format("{} exists and is {}, not {}", base::quoted(path), name_of(*there), name_of(kind))
                      : fmt::format("{} exists and was not written by Orrery", base::quoted(path)),
                "choose another name, or replace it with --force"));
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
  written_.push_back(path);
}

std::vector<std::string> Outputs::not_written(const std::vector<OutputFile>& files) const {
  std::vector<std::string> out;
  for (const OutputFile& one : files)
    if (!one.path.empty() && one.path != "-" && std::find(written_.begin(), written_.end(), one.path) == written_.end())
      out.push_back(one.path);
  return out;
}

}  // namespace orrery::apps
