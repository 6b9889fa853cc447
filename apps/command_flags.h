#pragma once
/// Adds every verb's flags to CLI11, which fills the records of apps/command_line.h. Private to the command line.
#include "apps/command_line.h"

namespace CLI {
class App;
}

namespace orrery::apps {

struct Verbs {
  InitOptions init;
  ModelOptions model;
  PlanOptions plan;
  SimulateOptions simulate;
  TrainOptions train;
  CalibrateOptions calibrate;
  ReportOptions report;
  ExplainOptions explain;
  ValidateOptions validate;
  CollectiveOptions collective;
  DoctorOptions doctor;
  ProbeOptions probe;
  ImportOptions import_;
  ExportOptions export_;
  SchemaOptions schema;
};

/// What was asked of the command itself.
struct Asked {
  std::string verb;  ///< whose help is wanted; empty: of all verbs
  bool man = false;
  std::string shell;  ///< whose completion is wanted
};

/// Adds verbs, arguments and flags. Values are read into the records, which must live as long as `app`.
void add_flags(CLI::App& app, CommonOptions& common, Verbs& verbs, Asked& asked);

}  // namespace orrery::apps
