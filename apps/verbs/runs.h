#pragma once
/// Reads run directories back: the plan that ran, its schedule, and what was measured.
#include <optional>
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "base/result.h"
#include "cost/fit/fit.h"
#include "cost/results.h"
#include "plan/schedule/timeline.h"
#include "reports/report.h"

namespace orrery::apps {

/// One line of metrics.jsonl.
struct Metric {
  std::int64_t step = 0;
  double loss = 0;
  double step_time_s = 0;
  double tokens_per_s = 0;
  double memory_peak_bytes = 0;                   ///< worst rank
  std::vector<reports::ExpertLoad> expert_loads;  ///< by layer, of the last step alone
  std::vector<reports::TableCache> table_caches;  ///< the last step has those of all steps, the others have none
  std::vector<double> memory_by_rank_bytes;       ///< arena, of the last step alone; empty when the run does not say
};

struct Run {
  std::string directory;
  LoadedPlan loaded;
  plan::Schedule schedule;
  plan::Timeline timeline;
  std::vector<Metric> metrics;
  bool held_out = false;
  std::string fingerprint;                        ///< of the timeline's bytes
  std::optional<cost::FitRun::Saved> saved = {};  ///< what its checkpoints took, if it has any
};

/// Why this is not the directory of a run: there is nothing (E0201), a file (E0125), or no plan in it (E0201). Empty:
/// it may be one.
[[nodiscard]] base::Diagnostics not_a_run(const std::string& directory);
[[nodiscard]] base::Result<Run> load_run(const Catalog& catalog, const std::string& directory);
/// All runs, or everything that is wrong with any of them. `held_out` come last and are marked. Runs without a
/// completed.json are left out, with a line in `notes`: their measurements may be an earlier run's. E0207 if no run is
/// left.
[[nodiscard]] base::Result<std::vector<Run>> load_runs(const Catalog& catalog, const std::vector<std::string>& used,
                                                       const std::vector<std::string>& held_out,
                                                       std::vector<std::string>& notes);
[[nodiscard]] base::Result<std::vector<Metric>> parse_metrics(const std::string& text, const std::string& file);

/// Prices for a set of runs: the largest of their clusters, and the stack they share. E0205 if the runs used
/// different devices or stacks.
[[nodiscard]] base::Result<cost::Pricing> pricing_of(const std::vector<Run>& runs,
                                                     const std::vector<cost::Calibration>& calibrations);

[[nodiscard]] std::vector<cost::FitRun> fit_runs(std::vector<Run> runs);

/// Fingerprint of a measurement, 16 hexadecimal digits: FNV-1a of 64 bits (Fowler, Noll and Vo; RFC 9923).
[[nodiscard]] std::string fingerprint_of(const std::string& text);

/// Whether the calibration was fitted to this run: to this measurement, or to another one in its directory.
[[nodiscard]] bool fitted_to(const cost::Calibration& calibration, const Run& run);

/// The middle value; 0 if empty.
[[nodiscard]] double median(std::vector<double> values);

/// A warning if a fit is no better than the values before it. `measured`: "runs", "logs".
[[nodiscard]] base::Diagnostics no_better(const cost::FitResult& result, const char* measured, const std::string& file,
                                          std::string help);

}  // namespace orrery::apps
