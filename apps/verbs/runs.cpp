// Reads run directories.
#include "apps/verbs/runs.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "apps/files.h"
#include "base/json.h"
#include "cost/parameters/habits.h"
#include "exec/launch/supervise.h"
#include "reports/spans.h"

namespace orrery::apps {
namespace fs = std::filesystem;

namespace {

/// Means over the run's checkpoints. Several nodes are assumed to write equally much.
std::optional<cost::FitRun::Saved> saved_of(const std::string& directory, const clusters::Cluster& cluster) {
  const auto record = exec::read_completion(directory);
  if (!record || record->checkpoints.count <= 0) return std::nullopt;
  const exec::SavedTotals& sums = record->checkpoints;
  const auto count = static_cast<double>(sums.count);
  const double bytes = sums.bytes / count;
  return cost::FitRun::Saved{{bytes, sums.largest_rank_bytes / count, bytes / cluster.nodes},
                             {sums.copy_s / count, sums.write_s / count, sums.commit_s / count}};
}

constexpr std::size_t kMostErrors = 20;
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr std::size_t kMostRanks = std::size_t{1} << 20;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

void read_ranks(base::JsonReader& in, std::vector<double>& bytes) {
  for (in.open_array(); in.item();) {
    if (bytes.size() == kMostRanks) in.error("more ranks than are possible");
    bytes.push_back(in.number(-kLargest, kLargest));
  }
}

/// `{"3": {"fullest": 1.4, "tokens": [...]}}`, by layer; without tokens if there are too many experts.
void read_loads(base::JsonReader& in, std::vector<reports::ExpertLoad>& loads) {
  in.open_object();
  for (std::string layer; in.key(layer);) {
    reports::ExpertLoad load;
    load.layer = layer;
    in.open_object();
    for (std::string key; in.key(key);) {
      if (key == "fullest")
        load.fullest = in.number(0, kLargest);
      else if (key == "tokens")
        read_ranks(in, load.tokens);
      else
        in.skip();
    }
    loads.push_back(std::move(load));
  }
}

/// `{"emb_l.0.weight": {"lookups": 64, "hits": 60, …}}`, by table.
void read_caches(base::JsonReader& in, std::vector<reports::TableCache>& caches) {
  in.open_object();
  for (std::string table; in.key(table);) {
    reports::TableCache cache;
    cache.table = table;
    in.open_object();
    for (std::string key; in.key(key);) {
      double* const known = key == "lookups"         ? &cache.lookups
                            : key == "hits"          ? &cache.hits
                            : key == "fetched_bytes" ? &cache.fetched_bytes
                            : key == "written_bytes" ? &cache.written_bytes
                                                     : nullptr;
      if (known != nullptr)
        *known = in.number(0, kLargest);
      else
        in.skip();
    }
    caches.push_back(std::move(cache));
  }
}

/// The sums of two steps' with the same tables; else the later ones.
void add_caches(const std::vector<reports::TableCache>& before, std::vector<reports::TableCache>& caches) {
  if (before.size() != caches.size()) return;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    if (before[i].table != caches[i].table) continue;
    caches[i].lookups += before[i].lookups;
    caches[i].hits += before[i].hits;
    caches[i].fetched_bytes += before[i].fetched_bytes;
    caches[i].written_bytes += before[i].written_bytes;
  }
}

/// A step's record, or nothing. Unknown keys may hold anything.
std::optional<Metric> metric_of(std::string_view row) {
  base::JsonReader in(row, {});
  Metric metric;
  std::set<std::string> missing = {"step", "loss", "step_time_s", "tokens_per_s", "memory_peak_bytes"};
  const auto number = [&] { return in.number(-kLargest, kLargest); };
  in.open_object();
  for (std::string key; in.key(key);) {
    missing.erase(key);
    if (key == "step")
      metric.step = in.integer(-kMostSteps, kMostSteps);
    else if (key == "loss")
      metric.loss = number();
    else if (key == "step_time_s")
      metric.step_time_s = number();
    else if (key == "tokens_per_s")
      metric.tokens_per_s = number();
    else if (key == "memory_peak_bytes")
      metric.memory_peak_bytes = number();
    else if (key == "expert_load")
      read_loads(in, metric.expert_loads);
    else if (key == "table_cache")
      read_caches(in, metric.table_caches);
    else if (key == "arena_peak_bytes_by_rank")
      read_ranks(in, metric.memory_by_rank_bytes);
    else
      in.skip();
  }
  in.finish();
  return in.failed() || !missing.empty() ? std::nullopt : std::optional(std::move(metric));
}

}  // namespace

base::Result<std::vector<Metric>> parse_metrics(const std::string& text, const std::string& file) {
  std::vector<Metric> metrics;
  base::Diagnostics found;
  std::size_t begin = 0;
  for (int line = 1; begin < text.size() && found.size() < kMostErrors; ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row(text.data() + begin, end - begin);
    begin = end + 1;
    if (row.empty()) continue;
    auto metric = metric_of(row);
    if (!metric) {
      found.push_back({base::Severity::error,
                       "E0204",
                       {file, line, 1, 1},
                       "not an object with the numbers step, loss, step_time_s, tokens_per_s and memory_peak_bytes",
                       "a line cut short comes from a run that died; remove it",
                       std::string(row.substr(0, 120))});
      continue;
    }
    // Only the last step's memory by rank and expert loads are shown; kept for all steps they would be most of the
    // file.
    if (!metrics.empty()) {
      add_caches(metrics.back().table_caches, metric->table_caches);
      metrics.back().memory_by_rank_bytes = {}, metrics.back().expert_loads = {}, metrics.back().table_caches = {};
    }
    metrics.push_back(std::move(*metric));
  }
  if (found.size() == kMostErrors && begin < text.size())
    found.push_back({base::Severity::note,
                     "",
                     {file, 0, 0, 1},
                     fmt::format("after {} errors the rest of the file is not reported", kMostErrors),
                     {},
                     {}});
  if (!found.empty()) return base::fail(std::move(found));
  return metrics;
}

base::Diagnostics not_a_run(const std::string& directory) {
  const fs::path folder(directory);
  std::error_code error;
  const auto refuse = [&](const char* code, const char* what, std::string help) {
    return base::Diagnostics{{base::Severity::error,
                              code,
                              {directory, 0, 0, 1},
                              fmt::format(fmt::runtime(what), base::quoted(directory)),
                              std::move(help),
                              {}}};
  };
  if (!fs::exists(folder, error))
    return refuse("E0201", "there is no plan or run named {}", "check the path; it is relative to the current folder");
  if (!fs::is_directory(folder, error))
    return refuse("E0125", "{} is a file, but the directory of a run is expected",
                  "`orrery train PLAN --run DIR` makes one");
  if (!fs::exists(folder / "plan.yaml", error))
    return refuse("E0201", "{} is no run: it has no plan.yaml",
                  fmt::format("`orrery train PLAN --run {}` makes a run there", directory));
  return {};
}

base::Result<Run> load_run(const Catalog& catalog, const std::string& directory) {
  const fs::path folder(directory);
  if (base::Diagnostics refused = not_a_run(directory); !refused.empty()) return base::fail(std::move(refused));
  auto loaded = load_plan(catalog, (folder / "plan.yaml").string());
  if (!loaded) return base::fail(loaded.error());
  plan::Schedule schedule = cost::lower_executed(loaded->plan, loaded->stack);
  base::Diagnostics found;
  const auto read = [&](const char* name) {
    auto text = read_file(folder / name, kMostMeasured);
    if (!text) found.insert(found.end(), text.error().begin(), text.error().end());
    return text.value_or("");
  };
  const std::string timeline_text = read("timeline.json"), metrics_text = read("metrics.jsonl");
  if (!found.empty()) return base::fail(std::move(found));
  const std::string timeline_file = (folder / "timeline.json").string();
  auto timeline = plan::parse_timeline(timeline_text, timeline_file);
  if (!timeline) return base::fail(timeline.error());
  if (!reports::belongs(*timeline, schedule))
    return base::fail({base::Diagnostic{base::Severity::error,
                                        "E0206",
                                        {timeline_file, 1, 1, 1},
                                        "the timeline does not belong to the plan beside it",
                                        "another version made the run; train again",
                                        {}}});
  auto metrics = parse_metrics(metrics_text, (folder / "metrics.jsonl").string());
  if (!metrics) return base::fail(metrics.error());
  const auto saved = saved_of(directory, loaded->file.cluster);
  return Run{directory,
             std::move(*loaded),
             std::move(schedule),
             std::move(*timeline),
             std::move(*metrics),
             false,
             fingerprint_of(timeline_text),
             saved};
}

base::Result<std::vector<Run>> load_runs(const Catalog& catalog, const std::vector<std::string>& used,
                                         const std::vector<std::string>& held_out, std::vector<std::string>& notes) {
  std::vector<Run> runs;
  base::Diagnostics found;
  const auto load = [&](const std::string& directory, bool is_held_out) {
    std::error_code error;
    if (fs::exists(fs::path(directory) / "plan.yaml", error) && !exec::read_completion(directory)) {
      notes.push_back(fmt::format("{} is left out: the run did not finish (it has no completed.json)", directory));
      return;
    }
    auto run = load_run(catalog, directory);
    if (!run) {
      found.insert(found.end(), run.error().begin(), run.error().end());
      return;
    }
    run->held_out = is_held_out;
    runs.push_back(std::move(*run));
  };
  for (const std::string& directory : used) load(directory, false);
  for (const std::string& directory : held_out) load(directory, true);
  if (!found.empty()) return base::fail(std::move(found));
  if (runs.empty())
    return base::fail("E0207", notes.empty() ? "no runs are given" : notes.front(),
                      "train again, or continue with `orrery train --resume`");
  return runs;
}

base::Result<cost::Pricing> pricing_of(const std::vector<Run>& runs,
                                       const std::vector<cost::Calibration>& calibrations) {
  const Run* largest = &runs.front();
  for (const Run& run : runs) {
    const clusters::Cluster &here = run.loaded.file.cluster, &there = largest->loaded.file.cluster;
    if (here.device().name != there.device().name || run.loaded.stack.name != largest->loaded.stack.name)
      return base::fail(
          {base::Diagnostic{base::Severity::error,
                            "E0205",
                            {run.directory + "/plan.yaml", 1, 1, 1},
                            fmt::format("ran on {} with {}, but other runs on {} with {}", here.device().name,
                                        run.loaded.stack.name, there.device().name, largest->loaded.stack.name),
                            "calibrate each kind of device and each stack separately",
                            {}}});
    if (here.size() > there.size()) largest = &run;
  }
  return cost::Pricing(std::make_shared<const clusters::Cluster>(largest->loaded.file.cluster), largest->loaded.stack,
                       calibrations);
}

std::vector<cost::FitRun> fit_runs(std::vector<Run> runs) {
  std::vector<cost::FitRun> out;
  for (Run& run : runs)
    out.push_back({run.directory, std::move(run.schedule), std::move(run.timeline), run.held_out, run.saved});
  return out;
}

std::string fingerprint_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

bool fitted_to(const cost::Calibration& calibration, const Run& run) {
  return std::any_of(calibration.fitted_to.begin(), calibration.fitted_to.end(), [&](const cost::FittedTo& one) {
    return one.fingerprint == run.fingerprint ||
           (fs::path(one.run) / "").lexically_normal() == (fs::path(run.directory) / "").lexically_normal();
  });
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

base::Diagnostics no_better(const cost::FitResult& result, const char* measured, const std::string& file,
                            std::string help) {
  if (result.error_after < result.error_before) return {};
  return {{base::Severity::warning,
           "F03",
           {file, 0, 0, 1},
           fmt::format("the fitted coefficients predict the {} no better than the earlier ones: mean error {:.1f} % "
                       "after, {:.1f} % before",
                       measured, 100 * result.error_after, 100 * result.error_before),
           std::move(help),
           {}}};
}

}  // namespace orrery::apps
