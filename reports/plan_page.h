#pragma once
/// What a report says of a plan alone, of several things beside each other, and of a whole run: records, their tables
/// and their JSON. The page draws them (reports/html/).
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
#include "reports/plan_table.h"
#include "reports/table.h"
#include "reports/topology.h"

namespace orrery::reports {

/// Beside a plan's prediction and its timeline: where its numbers come from and what they hang on.
struct PlanPage {
  PlanHeading heading;
  cost::Operators operators;
  std::vector<cost::Variation> neighbours;
  std::vector<cost::Sensitivity> sensitivities;
  Topology topology;   ///< with the load of the plan's step; no tiers: not drawn
  Table coefficients;  ///< name, value, source of each that prices were made of
  std::string trace;   ///< Chrome trace of the timeline, to be saved from the page; empty: none
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
  std::optional<plan::Timeline> timeline;   ///< as measured where it was run, else as predicted
};
/// "A · plan.yaml": short, and different from all others'.
[[nodiscard]] std::vector<std::string> short_names(const std::vector<Compared>& all);
/// Fields of the plans in which they differ, model, cluster and software first: a row each, a column for each plan.
[[nodiscard]] Table differences_table(const std::vector<Compared>& all);
/// Times, rates, memory and money, each with its ratio to the first's.
[[nodiscard]] Table compared_table(const std::vector<Compared>& all);
[[nodiscard]] nlohmann::json compared_json(const std::vector<Compared>& all);

/// A run of so many tokens.
struct RunLength {
  std::string what, source;  ///< "given", "Hoffmann et al. 2022"; the formula
  double parameters = 0, tokens = 0;
  std::int64_t steps = 0;
  double run_s = 0;              ///< with failures
  double usd = 0, energy_j = 0;  ///< of all devices at their price and power for as long
  double loss = 0;               ///< that Hoffmann et al. would expect; 0: no language model
  bool this_model = true;        ///< else another model that the budget is best spent on: tokens alone
};
/// What a run directory says of restarts and checkpoints.
struct RealRun {
  std::string directory;
  std::int64_t steps = 0, resumed_from = 0;
  double step_time_s = 0;             ///< median
  std::int64_t restarts = 0;          ///< that the directory has records of
  std::vector<std::string> failures;  ///< why, in words
  double lost_s = 0;                  ///< in steps done again, and from failures until steps went on
  std::int64_t checkpoints = 0;
  double pause_s = 0;  ///< of one checkpoint
  double write_s = 0;
  double goodput = 0;  ///< useful over all of it
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
[[nodiscard]] Table failures_table(const WholeRun& run);  ///< predicted, and of the real run beside it
[[nodiscard]] nlohmann::json whole_run_json(const WholeRun& run);

}  // namespace orrery::reports
