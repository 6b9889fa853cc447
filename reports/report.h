#pragma once
/// The HTML report: one self-contained file made from records, with charts that a browser draws from declarative Vega
/// specifications. It needs no network. Every part is optional and left out when absent. No file is opened here: the
/// charting library's text is passed in.
#include <optional>
#include <string>
#include <vector>

#include "cost/results.h"
#include "cost/scaling.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"
#include "reports/plan_page.h"

namespace orrery::reports {

/// One line of provenance: an input with its hash, a version, a machine, a parameter's source.
struct Provenance {
  std::string what;    ///< "plan.yaml", "orrery", "machine"
  std::string value;   ///< "sha256 3f2a…", "0.1.0", "2 cores, AMD EPYC"
  std::string source;  ///< file, link or remark; may be empty
};

/// Measured bytes of one stage's worst rank, drawn beside the predicted ones.
struct MeasuredMemory {
  plan::StageId stage;
  double bytes = 0;
};

/// What the cache of a table outside the device's memory did, over all ranks and steps.
struct TableCache {
  std::string table;
  double lookups = 0, hits = 0;  ///< hits: the row was there before the step
  double fetched_bytes = 0, written_bytes = 0;
};

/// The load of a layer's experts in a step.
struct ExpertLoad {
  std::string layer;           ///< its number
  double fullest = 0;          ///< tokens of the fullest expert over the mean
  std::vector<double> tokens;  ///< of each expert; empty if there are too many to keep
};

struct ReportData {
  std::string title;                           ///< "tiny-gpt on localhost-2"
  std::string subtitle;                        ///< what was asked for, in a sentence; may be empty
  std::optional<cost::Prediction> prediction;  ///< of the plan whose timelines are shown
  std::optional<cost::MeasuredRun> run;        ///< the measured run of that plan
  std::optional<plan::Schedule> schedule;      ///< of `predicted` and `measured`; without it neither is drawn
  std::optional<plan::Timeline> predicted, measured;
  std::optional<cost::Breakdown> measured_breakdown;  ///< beside prediction->breakdown
  std::vector<MeasuredMemory> measured_memory;        ///< beside prediction->memory
  std::vector<double> losses;                         ///< by step, from the first
  std::vector<ExpertLoad> expert_loads;               ///< of the run's last step, by layer
  std::vector<TableCache> table_caches;               ///< of all steps
  std::vector<cost::MeasuredRun> runs;
  std::optional<cost::FitResult> fit;
  std::optional<cost::ScalingStudy> scaling;
  std::optional<cost::SearchResult> search;
  std::optional<PlanHeading> search_heading;  ///< of `search`
  std::optional<PlanPage> page;               ///< of `prediction`
  std::vector<Compared> compared;             ///< if two or more, the page begins with how they differ
  std::optional<WholeRun> whole_run;
  std::vector<Provenance> provenance;
};

/// Vega, as packaged in Debian's libjs-vega: modules that the page joins.
struct ChartLibrary {
  std::string version;             ///< for the provenance table: "libjs-vega 5.22.1"
  std::vector<std::string> parts;  ///< the texts of chart_library_files(), in that order; empty: tables only
  std::string licence;             ///< the library's licence text, kept in the page as a comment; may be empty
};

/// File names of the library's modules in its folder (Debian: /usr/share/javascript/vega), in order of dependency.
[[nodiscard]] std::vector<std::string> chart_library_files();

/// The page. Timelines must belong to the schedule (reports/spans.h). Same input, same bytes.
[[nodiscard]] std::string report_html(const ReportData& data, const ChartLibrary& library);

}  // namespace orrery::reports
