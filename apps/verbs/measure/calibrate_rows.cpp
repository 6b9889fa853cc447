// calibrate --rows: makes a stack from a handful of measured runs of any framework.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/terminal.h"
#include "apps/verbs/measure/calibrate.h"
#include "apps/verbs/published_rows.h"
#include "reports/validation.h"
#include "sim/validate/fit_rows.h"
#include "sim/validate/software.h"

namespace orrery::apps {

namespace {

/// The stack that the rows name, if they agree and the catalogue has it; else the generic stack of their kind.
base::Result<cost::Stack> family_of(const CalibrateOptions& options, const Context& context,
                                    const std::vector<sim::Row>& rows, const sim::Library& library) {
  if (!options.like.empty()) return load_stack(context.catalog, options.like, {});
  std::set<std::string> names;
  bool compiled = !rows.empty();
  for (const sim::Row& row : rows) {
    names.insert(row.setup.stack);
    compiled = compiled && sim::is_compiled(row.setup);
  }
  if (names.size() == 1)
    for (const cost::Stack& stack : library.stacks)
      if (stack.name == *names.begin()) return stack;
  return load_stack(context.catalog, compiled ? cost::kGenericCompiled : cost::kGenericEager, {});
}

}  // namespace

Outcome calibrate_to_rows(const CalibrateOptions& options, const Context& context) {
  Outcome outcome;
  const auto rows = load_rows(context.catalog, options.rows, sim::Origin::own, &outcome.diagnostics);
  if (!rows) return bad_input(rows.error());
  auto library = load_library(context.catalog, {}, "", options.cluster);
  if (!library) return bad_input(library.error());
  const auto like = family_of(options, context, *rows, *library);
  if (!like) return bad_input(like.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());

  const Interrupt interrupt;
  Progress progress(context.terminal.progress);
  sim::RowFitOptions fit;
  fit.name = std::filesystem::path(options.output).stem().string();
  fit.progress = [&](const std::string& what) {
    progress.line("fitting " + what);
    return !Interrupt::requested();
  };
  const auto fitted = sim::fit_rows(*rows, std::move(*library), *like, *intervals, fit);
  progress.clear();
  if (!fitted && fitted.error().empty()) {
    Outcome stopped;
    stopped.exit_code = kInterrupted;
    return stopped;
  }
  if (!fitted) {
    outcome.exit_code = kBadInput;
    outcome.diagnostics.insert(outcome.diagnostics.end(), fitted.error().begin(), fitted.error().end());
    return outcome;
  }
  outcome.diagnostics.insert(outcome.diagnostics.end(), fitted->warnings.begin(), fitted->warnings.end());

  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  context.outputs.write(
      options.output,
      cost::write_stack(fitted->stack, {fmt::format("Fitted by `orrery calibrate --rows` on {} to {} runs, "
                                                    "around {}.",
                                                    date, fitted->used, fitted->like)}));
  outcome.json = reports::row_fit_json(*fitted, options.output).dump();
  outcome.text = reports::row_fit_text(*fitted, context.terminal.style);
  outcome.text += fmt::format("\n{} {}    next: orrery validate --stack {} ROWS, or `stack: {}` in a job\n",
                              context.outputs.wrote(), options.output, options.output, options.output);
  if (fitted->after.count > 0 && fitted->after.median > fitted->before.median)
    outcome.diagnostics.push_back(
        {base::Severity::warning,
         "F03",
         {options.output, 0, 0, 1},
         "the fitted numbers predict the runs no better than the earlier ones",
         "look at the runs that were left out, and at --like; rows of several frameworks do not fit together",
         {}});
  return outcome;
}

}  // namespace orrery::apps
