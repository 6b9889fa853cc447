#pragma once
/// The verbs: from options and a context to an Outcome. The rooms do the work; here it is only put together.
#include <functional>

#include "apps/catalog.h"
#include "apps/command_line.h"
#include "apps/outcome.h"
#include "apps/outputs.h"
#include "apps/terminal.h"

namespace orrery::apps {

struct Context {
  const Catalog& catalog;
  const Terminal& terminal;
  const Outputs& outputs;
  bool quiet = false;
  bool json = false;
};

[[nodiscard]] Outcome run_init(const InitOptions& options, const Context& context);
[[nodiscard]] Outcome run_model(const ModelOptions& options, const Context& context);
[[nodiscard]] Outcome run_plan(const PlanOptions& options, const Context& context);
[[nodiscard]] Outcome run_simulate(const SimulateOptions& options, const Context& context);
[[nodiscard]] Outcome run_train(const TrainOptions& options, const Context& context);
[[nodiscard]] Outcome run_calibrate(const CalibrateOptions& options, const Context& context);
/// `calibrate --rows`.
[[nodiscard]] Outcome calibrate_to_rows(const CalibrateOptions& options, const Context& context);
[[nodiscard]] Outcome run_report(const ReportOptions& options, const Context& context);
[[nodiscard]] Outcome run_explain(const ExplainOptions& options, const Context& context);
[[nodiscard]] Outcome run_explain_cluster(const ExplainOptions& options, const Context& context);
[[nodiscard]] Outcome run_validate(const ValidateOptions& options, const Context& context);
[[nodiscard]] Outcome run_collective(const CollectiveOptions& options, const Context& context);
[[nodiscard]] Outcome run_doctor(const DoctorOptions& options, const Context& context);
[[nodiscard]] Outcome run_probe(const ProbeOptions& options, const Context& context);
[[nodiscard]] Outcome run_import(const ImportOptions& options, const Context& context);
[[nodiscard]] Outcome run_export(const ExportOptions& options, const Context& context);
[[nodiscard]] Outcome run_schema(const SchemaOptions& options, const Context& context);
/// Turns logs of nccl-tests into a calibration file; `texts` are those of options.files.
[[nodiscard]] Outcome import_nccl_tests(const ImportOptions& options, const std::vector<std::string>& texts,
                                        const Context& context);

/// The whole command: parse, run, print; returns the exit code.
[[nodiscard]] int run_command(int argc, const char* const* argv);

}  // namespace orrery::apps
