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

/// Numbers of each stack's own file. Only what changed is written, so that a second fit touches nothing.
Outcome fit_stacks(const ValidateOptions& options, const Context& context, const std::vector<sim::Row>& rows,
                   sim::Library library) {
  auto families = sim::stack_families(library.stacks);
  if (!families) return bad_input(families.error());
  const std::vector<cost::Stack> stacks = library.stacks;
  const Interrupt interrupt;
  Progress progress(context.terminal.progress);
  const auto go_on = [] { return !Interrupt::requested(); };
  const sim::Cases cases = sim::make_cases(rows, std::move(library), [&](std::size_t) { return go_on(); });
  sim::StackFitter fitter(rows, cases, std::move(*families));
  std::size_t asked = 0;
  const std::vector<cost::FamilyFit> fits = sim::fit_stacks(fitter, rows, cases, stacks, [&] {
    progress.line(fmt::format("fitting: {} combinations tried", ++asked));
    return go_on();
  });
  progress.clear();
  Outcome outcome;
  if (Interrupt::requested()) {  // half a fit is not written
    outcome.exit_code = kInterrupted;
    return outcome;
  }
  std::vector<std::string> written;
  for (const cost::Stack& stack : stacks) {
    std::vector<cost::FittedNumber> own;
    for (const cost::FamilyFit& fit : fits)
      for (const cost::FittedNumber& number : fit.numbers)
        if (number.stack == stack.name) own.push_back(number);
    if (own.empty()) continue;
    const std::filesystem::path file = std::filesystem::path(options.fit_stacks) / (stack.name + ".yaml");
    const auto text = read_file(file);
    if (!text) return bad_input(text.error());
    const auto changed = sim::rewritten_stack(*text, file.string(), own);
    if (!changed) return bad_input(changed.error());
    if (*changed == *text) continue;
    write_file(file, *changed);
    written.push_back(file.string());
  }
  outcome.json = reports::stack_fits_json(fits, written).dump();
  outcome.text = reports::stack_fits_text(fits, context.terminal.style);
  for (const std::string& file : written) outcome.text += fmt::format("Wrote {}\n", file);
  return outcome;
}

}  // namespace

Outcome run_validate(const ValidateOptions& options, const Context& context) {
  const auto rows = rows_of(context.catalog, options.files);
  if (!rows) return bad_input(rows.error());
  auto library = library_of(context.catalog, options.calibrations);
  if (!library) return bad_input(library.error());
  if (!options.fit_stacks.empty()) return fit_stacks(options, context, *rows, std::move(*library));
  const Interrupt interrupt;
  const cost::Validation validation =
      sim::validate(*rows, std::move(*library), [&](std::size_t) { return !Interrupt::requested(); });
  Outcome outcome;
  outcome.json = reports::validate_json(validation).dump();
  outcome.text = reports::validation_text(validation, context.terminal.style);
  return outcome;
}

}  // namespace orrery::apps
