#pragma once
/// What a report says about a plan alone, about several beside each other, and about a whole run: records, their tables
/// and their JSON. reports/html/ draws them.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost/explanation.h"
#include "cost/results.h"
#include "cost/run/scaling_laws.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"
#include "reports/goodput.h"
#include "reports/tables/plan_table.h"
#include "reports/tables/table.h"
#include "reports/topology.h"

namespace orrery::reports {

/// What a page adds to a plan's prediction and timeline: the sources of its numbers, and what they depend on.
struct PlanPage {
  PlanHeading heading;
  cost::Operators operators;
  std::vector<cost::Variation> neighbours;
  std::vector<cost::Sensitivity> sensitivities;
  Topology topology;   ///< with the load of the plan's step; without tiers it is not drawn
  Table coefficients;  ///< name, value and source of each that the prices use
  std::string trace;   ///< Chrome trace of the timeline that can be saved from the page; empty: none
  bool saved = false;  ///< the figures were saved, and a replay gives others
};
[[nodiscard]] nlohmann::json plan_page_json(const cost::Prediction& prediction, const PlanPage& page);

/// One of several things that are compared.
struct Compared {
  std::string name;  ///< as the user named it
  cost::Prediction prediction;
  PlanHeading heading;
  std::optional<cost::MeasuredRun> run;
  std::optional<cost::Breakdown> measured;  ///< of that run
  std::optional<plan::Schedule> schedule;   ///< of `timeline`
  std::optional<plan::Timeline> timeline;   ///< as measured if it was run, else as predicted
  bool saved = false;                       ///< as PlanPage::saved
};
/// "A · plan.yaml": short and unique.
[[nodiscard]] std::vector<std::string> short_names(const std::vector<Compared>& all);
/// Fields in which the plans differ, model, cluster and software first: one row per field, one column per plan.
[[nodiscard]] Table differences_table(const std::vector<Compared>& all);
/// Times, rates, memory and money, each with its ratio to the first's.
[[nodiscard]] Table compared_table(const std::vector<Compared>& all);
[[nodiscard]] nlohmann::json compared_json(const std::vector<Compared>& all);

/// A run of a number of tokens.
struct RunLength {
  std::string what, source;  ///< "given", "Hoffmann et al. 2022"; the formula
  double parameters = 0, tokens = 0;
  std::int64_t steps = 0;
  double run_s = 0;              ///< including failures
  double usd = 0, energy_j = 0;  ///< of all devices, at their price and power, for that time
  double loss = 0;               ///< as Hoffmann et al. predict it; 0: not a language model
  bool this_model = true;        ///< false: another model that would use the budget best; only its tokens are known
};
/// What a run directory records about restarts and checkpoints.
struct RealRun {
  std::string directory;
  std::int64_t steps = 0, resumed_from = 0;
  double step_time_s = 0;             ///< median
  std::int64_t restarts = 0;          ///< recorded in the directory
  std::vector<std::string> failures;  ///< reasons in words
  double lost_s = 0;                  ///< in repeated steps, and from each failure until steps went on
  std::int64_t checkpoints = 0;
  double pause_s = 0;  ///< of one checkpoint
  double write_s = 0;
  double goodput = 0;  ///< useful share of all its time
};
struct WholeRun {
  CheckpointForecast checkpoint;
  cost::Forecast forecast;  ///< of the first length
  std::vector<RunLength> lengths;
  std::vector<std::pair<double, double>> by_interval;  ///< goodput by seconds between checkpoints
  std::optional<RealRun> real;
  int devices = 0, devices_per_node = 0;
};
[[nodiscard]] Table lengths_table(const WholeRun& run);
[[nodiscard]] Table failures_table(const WholeRun& run);  ///< predicted, and beside it the real run's
[[nodiscard]] nlohmann::json whole_run_json(const WholeRun& run);

}  // namespace orrery::reports
