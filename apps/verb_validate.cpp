// validate: the simulator against published measurements.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "reports/json.h"
#include "reports/text.h"
#include "reports/validation.h"
#include "sim/validate/cross_validate.h"
#include "sim/validate/fit.h"
#include "sim/validate/validate.h"

namespace orrery::apps {
namespace {

constexpr const char* kCarried = "tests/validation/published";

/// Everything a row may name. A catalogue entry that cannot be read is a bug of the catalogue, and said.
base::Result<sim::Library> library_of(const Catalog& catalog, const std::vector<std::string>& calibrations) {
  sim::Library library;
  base::Diagnostics found;
  const auto take = [&](auto& into, auto&& result) {
    if (result)
      into.push_back(std::move(*result));
    else
      found.insert(found.end(), result.error().begin(), result.error().end());
  };
  for (const std::string& name : catalog.names(kClusters)) take(library.clusters, load_cluster(catalog, name, {}, {}));
  for (const std::string& name : catalog.names(kStacks)) take(library.stacks, load_stack(catalog, name, {}));
  auto known = load_calibrations(catalog, calibrations);
  if (!known) return base::fail(known.error());
  library.calibrations = std::move(*known);
  if (!found.empty()) return base::fail(std::move(found));
  return library;
}

base::Result<std::vector<sim::Row>> rows_of(const Catalog& catalog, const std::vector<std::string>& files) {
  std::vector<Entry> texts;
  base::Diagnostics found;
  for (const std::string& file : files) {
    auto text = read_file(file);
    if (!text)
      found.insert(found.end(), text.error().begin(), text.error().end());
    else
      texts.push_back({file, std::move(*text)});
  }
  if (files.empty())
    for (const std::string& name : catalog.names(kCarried)) texts.push_back(*catalog.find(kCarried, name));
  std::vector<sim::Row> rows;
  for (const Entry& entry : texts) {
    auto parsed = sim::parse_rows(entry.text, entry.path.string());
    if (!parsed)
      found.insert(found.end(), parsed.error().begin(), parsed.error().end());
    else
      rows.insert(rows.end(), parsed->begin(), parsed->end());
  }
  if (!found.empty()) return base::fail(std::move(found));
  return rows;
}

/// What the steps of one validation share.
struct Work {
  const ValidateOptions& options;
  const std::vector<sim::Row>& rows;
  std::vector<cost::Stack> stacks;
  sim::Cases cases;
  Progress progress;

  [[nodiscard]] static bool go_on() { return !Interrupt::requested(); }
};

/// Numbers of each stack's own file; only files that change are written.
base::Result<std::vector<std::string>> write_stacks(const Work& work, const std::vector<cost::FamilyFit>& fits) {
  std::vector<std::string> written;
  for (const cost::Stack& stack : work.stacks) {
    std::vector<cost::FittedNumber> own;
    for (const cost::FamilyFit& fit : fits)
      for (const cost::FittedNumber& number : fit.numbers)
        if (number.stack == stack.name) own.push_back(number);
    if (own.empty()) continue;
    const std::filesystem::path file = std::filesystem::path(work.options.fit_stacks) / (stack.name + ".yaml");
    const auto text = read_file(file);
    if (!text) return base::fail(text.error());
    const auto changed = sim::rewritten_stack(*text, file.string(), own);
    if (!changed) return base::fail(changed.error());
    if (*changed == *text) continue;
    write_file(file, *changed);
    written.push_back(file.string());
  }
  return written;
}

void write_intervals(const Work& work, const cost::CrossValidation& left_out) {
  std::vector<std::string> names;
  for (const cost::Stack& stack : work.stacks)
    if (stack.name.rfind("orrery", 0) != 0) names.push_back(stack.name);  // Orrery's own are measured, not published
  write_file(work.options.intervals,
             cost::write_intervals(sim::intervals_from(work.rows, work.cases, left_out, names)));
}

/// Fits are asked for: --fit-stacks, --cross-validate, --intervals, in any combination.
Outcome with_fits(Work& work, const Context& context, cost::Validation validation) {
  auto families = sim::stack_families(work.stacks);
  if (!families) return bad_input(families.error());
  sim::StackFitter fitter(work.rows, work.cases, std::move(*families));
  Outcome outcome;
  outcome.exit_code = kInterrupted;  // until all is done: half a fit is neither shown nor written
  std::vector<std::string> written;
  std::vector<cost::FamilyFit> fits;
  const bool fit_stacks = !work.options.fit_stacks.empty();
  if (fit_stacks) {
    std::size_t asked = 0;
    fits = sim::fit_stacks(fitter, work.rows, work.cases, work.stacks, [&] {
      work.progress.line(fmt::format("fitting: {} combinations tried", ++asked));
      return Work::go_on();
    });
    if (!Work::go_on()) return outcome;
  }
  const bool cross_validate = work.options.cross_validate || !work.options.intervals.empty();
  if (cross_validate) {
    validation.cross_validation = sim::cross_validate(work.rows, work.cases, fitter, Work::go_on, [&](double share) {
      constexpr int kWidth = 30;
      work.progress.line(fmt::format("leaving out {}", bar(share, kWidth)));
    });
    if (!validation.cross_validation->complete) return outcome;
  }
  work.progress.clear();
  if (fit_stacks) {
    auto files = write_stacks(work, fits);
    if (!files) return bad_input(files.error());
    written = std::move(*files);
  }
  if (!work.options.intervals.empty()) {
    write_intervals(work, *validation.cross_validation);
    written.push_back(work.options.intervals);
  }
  outcome.exit_code = kOk;
  nlohmann::json json = reports::validate_json(validation);
  if (fit_stacks) {
    json.update(reports::stack_fits_json(fits));
    outcome.text = reports::stack_fits_text(fits, context.terminal.style) + "\n";
  }
  if (cross_validate)
    outcome.text += reports::cross_validation_text(*validation.cross_validation, context.terminal.style);
  json["written"] = written;
  outcome.json = json.dump();
  for (const std::string& file : written) outcome.text += fmt::format("Wrote {}\n", file);
  return outcome;
}

}  // namespace

Outcome run_validate(const ValidateOptions& options, const Context& context) {
  const auto rows = rows_of(context.catalog, options.files);
  if (!rows) return bad_input(rows.error());
  auto library = library_of(context.catalog, options.calibrations);
  if (!library) return bad_input(library.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  const Interrupt interrupt;
  std::vector<cost::Stack> stacks = library->stacks;
  Work work{options, *rows, std::move(stacks),
            sim::make_cases(*rows, std::move(*library), [](std::size_t) { return Work::go_on(); }),
            Progress(context.terminal.progress)};
  cost::Validation validation = sim::validate(*rows, work.cases, *intervals);
  if (options.cross_validate || !options.fit_stacks.empty() || !options.intervals.empty())
    return with_fits(work, context, std::move(validation));
  Outcome outcome;
  outcome.json = reports::validate_json(validation).dump();
  outcome.text = reports::validation_text(validation, context.terminal.style);
  return outcome;
}

}  // namespace orrery::apps
