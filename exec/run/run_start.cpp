// Examines a run directory before anything is done in it.
#include "exec/run/run_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "exec/data/mark.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/launch/supervise.h"
#include "exec/run/metrics.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/generations.h"
#include "models/read/read.h"
#include "plan/spec/plan_file.h"
#include "plan/spec/recommender_rules.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPlan = 64U << 20;
constexpr const char* kRemoving = "removing";
constexpr const char* kRecords[] = {"completed.json", "failure.json",   "timeline.json",
                                    "metrics.jsonl",  "restarts.jsonl", kSavedMark};

bool there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

/// A checkpoint that still has its temporary name, or one whose name was taken away for removal.
bool is_debris(const std::string& name) {
  return name.rfind("step-", 0) == 0 && ends_with(name, ".tmp");
}

/// Names in a folder, sorted; empty if there is no such folder. Throws Failure if it cannot be listed.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  if (!there(folder)) return out;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) out.push_back(it->path().filename().string());
  if (error) throw Failure(fmt::format("{} cannot be listed: {}", folder.string(), error.message()));
  std::sort(out.begin(), out.end());
  return out;
}

/// Entries in the folder of checkpoints that may be checkpoints under other names: damaged, put aside, moved.
std::vector<std::string> odd_entries(const fs::path& folder) {
  std::vector<std::string> out;
  for (const std::string& name : names_in(folder))
    if (name.find("step-") != std::string::npos && !is_debris(name) && !step_of(name)) out.push_back(name);
  return out;
}

base::Diagnostic doubt(const fs::path& run, std::string found) {
  return {base::Severity::error,
          "E0641",
          {run.string(), 0, 0, 1},
          std::move(found) + "; nothing was changed",
          "put back what is missing (mount the disk, restore the files) and use --resume; or start over in another "
          "directory, or here with --overwrite, which removes what is there",
          {}};
}

/// A warning if the next step would not read what the resumed run would have read.
std::optional<base::Diagnostic> other_data(const fs::path& run, const plan::Plan& plan, const plan::Training& training,
                                           const std::optional<DataMark>& then, const DataMark& now) {
  constexpr const char* kHelp = "the position in the data is the number of sequences read";
  if (then && *then != now)
    return base::Diagnostic{base::Severity::warning,
                            "E0628",
                            {training.generated ? "training.data" : training.data, 0, 0, 1},
                            fmt::format("the data has changed since the run that is to be resumed read it: {}, then "
                                        "{}; some is read twice, or not at all",
                                        describe(now), describe(*then)),
                            kHelp,
                            {}};
  const fs::path path = run / "plan.yaml";
  if (!there(path)) return std::nullopt;
  const auto stored = plan::parse_plan_file(read_file(path, kMostPlan), path.string());
  if (!stored) return std::nullopt;
  const plan::Training& theirs = stored->job.training;
  const plan::PlanSpec &before = stored->spec, &after = plan.spec();
  const bool other = theirs.data != training.data || theirs.generated != training.generated;
  const char* const what = !then && other                                                              ? "data"
                           : theirs.tokenizer != training.tokenizer                                    ? "tokenizer"
                           : theirs.order != training.order                                            ? "order"
                           : theirs.order == plan::DataOrder::shuffled && theirs.seed != training.seed ? "seed"
                           : before.shape.sequence != after.shape.sequence                             ? "sequence"
                                                                                                       : nullptr;
  if (what == nullptr) return std::nullopt;
  return base::Diagnostic{
      base::Severity::warning,
      "E0628",
      {path.string(), 0, 0, 1},
      fmt::format("the job has another {} than the run that is to be resumed: some data is read twice, or not at all",
                  what),
      kHelp,
      {}};
}

}  // namespace

std::string recorded_in(const fs::path& run) {
  std::vector<std::string> found;
  try {
    if (const std::int64_t steps = steps_told(run / "metrics.jsonl"); steps > 0)
      found.push_back(fmt::format("records of {}", base::count_of(steps, "step")));
  } catch (const Failure& failure) {
    found.emplace_back(failure.what());
  }
  if (there(run / "completed.json")) found.emplace_back("the record of its end");
  if (there(run / "timeline.json")) found.emplace_back("a timeline");
  try {
    const std::size_t checkpoints = generations(run / kCheckpoints).size();
    if (checkpoints > 0) found.push_back(base::count_of(static_cast<std::int64_t>(checkpoints), "checkpoint"));
    if (const auto odd = odd_entries(run / kCheckpoints); !odd.empty())
      found.push_back(fmt::format("{} in {}", fmt::join(odd, ", "), kCheckpoints));
    if (checkpoints == 0 && there(run / kSavedMark)) found.emplace_back("the mark that checkpoints were saved");
    if (const auto dumps = names_in(run / "gradients"); !dumps.empty())
      found.push_back(base::count_of(std::ssize(dumps), "file") + " of gradients");
  } catch (const Failure& failure) {
    found.emplace_back(failure.what());
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

base::Result<bool> may_begin_in(const fs::path& run) {
  const std::string found = recorded_in(run);
  if (found.empty()) return true;
  return base::fail({base::Diagnostic{base::Severity::error,
                                      "E0640",
                                      {run.string(), 0, 0, 1},
                                      fmt::format("the directory holds an earlier run: {}", found),
                                      "--resume continues from its newest checkpoint; --overwrite removes it and "
                                      "starts over; or train into another directory",
                                      {}}});
}

base::Result<bool> may_resume_in(const fs::path& run) {
  const fs::path folder = run / kCheckpoints;
  try {
    if (!generations(folder).empty()) return true;
    if (const auto odd = odd_entries(folder); !odd.empty())
      return base::fail(
          {doubt(run, fmt::format("{} has no checkpoint, but {}", folder.string(), fmt::join(odd, ", ")))});
  } catch (const Failure& failure) {
    return base::fail({doubt(run, failure.what())});
  }
  if (there(run / kSavedMark))
    return base::fail({doubt(
        run, fmt::format("the run has saved checkpoints ({} says so), but {} has none", kSavedMark, folder.string()))});
  if (there(run / "completed.json"))
    return base::fail(
        {doubt(run, fmt::format("the run has finished, but {} has no checkpoint to resume from", folder.string()))});
  return false;
}

base::Diagnostic nothing_whole(const fs::path& run, const std::string& found) {
  return doubt(run, "no checkpoint is whole: " + found);
}

bool recorded_as_completed(const fs::path& run) {
  const auto record = read_completion(run);
  return record && record->completed;
}

void sweep_debris(const fs::path& run, const std::string& run_id) {
  const std::string own = "offload-" + run_id + "-rank-";
  for (const std::string& name : names_in(run)) {
    const bool temporary = name == "plan.yaml.tmp" || name == std::string(kRemoving) + ".tmp" ||
                           name == "metrics.jsonl.damaged.tmp" ||
                           std::any_of(std::begin(kRecords), std::end(kRecords),
                                       [&](const char* record) { return name == std::string(record) + ".tmp"; });
    const bool state = name.rfind("offload-", 0) == 0 && name.find("-rank-") != std::string::npos &&
                       ends_with(name, ".state") && name.rfind(own, 0) != 0;
    if (temporary || state) remove_tree(run / name);
  }
  std::error_code error;
  if (fs::is_directory(run / kCheckpoints, error))
    for (const std::string& name : names_in(run / kCheckpoints))
      if (is_debris(name)) remove_tree(run / kCheckpoints / name);
  if (fs::is_directory(run / "gradients", error))
    for (const std::string& name : names_in(run / "gradients"))
      if (name.rfind("step-", 0) == 0 && ends_with(name, ".safetensors.tmp")) remove_tree(run / "gradients" / name);
}

void finish_removing(const fs::path& run) {
  if (there(run / kRemoving)) remove_run(run);
}

void remove_run(const fs::path& run) {
  write_atomically(run / kRemoving, "");
  for (const char* name : kRecords) remove_tree(run / name);
  remove_tree(run / "metrics.jsonl.damaged");
  std::error_code error;
  for (const char* folder : {kCheckpoints, "gradients"}) {
    if (!fs::is_directory(run / folder, error)) continue;  // a dangling link stays, and is reported when it is needed
    for (const std::string& name : names_in(run / folder))
      if (name.rfind("step-", 0) == 0) remove_tree(run / folder / name);
    if (names_in(run / folder).empty() && !fs::is_symlink(run / folder, error)) remove_tree(run / folder);
  }
  sync_folder(run);
  remove_tree(run / kRemoving);
}

base::Result<bool> may_go_on(const fs::path& run, const plan::Plan& plan) {
  if (base::Diagnostics refused = plan::refused_resume(plan.spec()); !refused.empty())
    return base::fail(std::move(refused));
  const fs::path path = run / "plan.yaml";
  if (!there(path)) return true;
  const auto stored = plan::parse_plan_file(read_file(path, kMostPlan), path.string());
  if (!stored) return base::fail(stored.error());
  models::Model theirs = stored->model;
  theirs.name = plan.model().name;
  theirs.sources = plan.model().sources;
  theirs.dropout = plan.model().dropout;  // part of the recipe, like the learning rate
  if (theirs == plan.model()) return true;
  const std::string difference = models::first_difference(theirs, plan.model());
  return base::fail({base::Diagnostic{base::Severity::error,
                                      "E0625",
                                      {path.string(), 0, 0, 1},
                                      fmt::format("the run that is to be resumed trains another model: {}",
                                                  difference.empty() ? stored->model.name : difference),
                                      "train into another directory, or start over with --overwrite",
                                      {}}});
}

base::Diagnostics said_of(const fs::path& run, const Resumed& resumed, const plan::Plan& plan,
                          const plan::Training& training, const DataMark& now) {
  base::Diagnostics out;
  const auto warn = [&](const char* code, std::string message, std::string help) {
    out.push_back({base::Severity::warning, code, {run.string(), 0, 0, 1}, std::move(message), std::move(help), {}});
  };
  if (auto other = other_data(run, plan, training, resumed.manifest.data, now)) out.push_back(std::move(*other));
  if (!resumed.manifest.sealed)
    warn("E0643", fmt::format("{} is of format 1.0, without a checksum of its own", resumed.from->string()),
         "its files are whole, but the position in the data cannot be checked");
  for (const DamagedGeneration& one : resumed.damaged)
    warn("E0642", fmt::format("{}; the run continues from {}", one.why, resumed.from->string()),
         fmt::format("{} is kept beside it under another name", one.path.filename().string()));
  return out;
}

void keep_damaged(const fs::path& run, const DamagedGeneration& damaged) {
  const fs::path aside = keep_aside(damaged.path);
  std::error_code ignored;
  for (const char* name : {"metrics.jsonl", "timeline.json", "completed.json"})
    if (fs::is_directory(aside, ignored) && fs::exists(run / name, ignored))
      fs::copy_file(run / name, aside / name, ignored);
}

}  // namespace orrery::exec
