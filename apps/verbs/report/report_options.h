#pragma once
/// Options of `report`, which several of its parts read.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/verbs/goodput.h"
#include "apps/verbs/verb.h"

namespace orrery::apps {

struct ReportOptions {
  std::vector<std::string> inputs;               ///< run directories, plan files and jobs
  std::vector<std::string> held_out;             ///< runs that the calibration has not seen
  std::string job;                               ///< for ranked plans
  std::vector<std::string> scaling;              ///< jobs to plan on more and more devices; folders among them are runs
  std::vector<int> gpus;                         ///< sizes to plan for; empty: each cluster's and halves of it
  std::vector<std::string> models, clusters;     ///< instead of the jobs' own; empty: theirs
  std::vector<std::int64_t> sequences, batches;  ///< likewise
  bool strong = false, weak = false;             ///< neither: strong
  bool hold_plan = false;                        ///< one plan at all sizes, except for `data`
  double deadline_days = 0;                      ///< of the run; 0: none
  std::optional<double> co2;                     ///< g/kWh; absent: the world's average
  std::vector<std::string> measured;             ///< files of measured rows to show beside the points
  bool all = false;                              ///< every series in the terminal, however many
  std::string format;                            ///< of the output: html, md, csv, json; empty: by its ending
  FailureOptions failures;                       ///< of a whole run; its tokens are the run's length
  bool compute_optimal = false;                  ///< train on as many tokens as are best for the model
  double budget_flops = 0;                       ///< of the run; 0: not given
  bool no_what_if = false;                       ///< leave out what other numbers and splits would change
  std::vector<std::string> settings;             ///< as PlanOptions::settings, overriding the jobs
  std::vector<std::string> calibrations;
  std::string output;  ///< empty: report.html, or standard output for text
};

void add_report_flags(Flags flags, ReportOptions& options);

}  // namespace orrery::apps
