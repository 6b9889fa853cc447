// calibrate: fits coefficients to measured runs and writes them down with where they come from.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/runs.h"
#include "apps/verbs.h"
#include "reports/json.h"
#include "reports/text.h"

namespace orrery::apps {

Outcome run_calibrate(const CalibrateOptions& options, const Context& context) {
  auto runs = load_runs(context.catalog, options.runs, options.held_out);
  if (!runs) return bad_input(runs.error());
  const auto known = load_calibrations(context.catalog, {});
  if (!known) return bad_input(known.error());
  const auto before = pricing_of(*runs, *known);
  if (!before) return bad_input(before.error());

  cost::FitOptions fit;
  fit.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  fit.name = std::filesystem::path(options.output).stem().string();
  const auto fitted = cost::fit(fit_runs(std::move(*runs)), *before, fit);
  if (!fitted) return bad_input(fitted.error());

  std::string text = "# Fitted to:\n";
  for (const std::string& run : options.runs) text += "#   " + run + "\n";
  write_file(options.output, text + cost::write_calibration(fitted->calibration));
  Outcome outcome;
  outcome.json = reports::calibrate_json(fitted->result).dump();
  outcome.text = reports::fit_text(fitted->result, context.terminal.style);
  outcome.text +=
      fmt::format("\nWrote {}    next: orrery simulate PLAN --calibration {}\n", options.output, options.output);
  return outcome;
}

}  // namespace orrery::apps
