// validate: compares the simulator with published measurements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "apps/chart_library.h"
#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/terminal.h"
#include "apps/verbs/published_rows.h"
#include "apps/verbs/verb.h"
#include "base/units.h"
#include "reports/json.h"
#include "reports/tables/text.h"
#include "reports/validation.h"
#include "sim/validate/cross_validate.h"
#include "sim/validate/fit.h"
#include "sim/validate/headlines.h"
#include "sim/validate/validate.h"

namespace orrery::apps {
namespace {

struct ValidateOptions {
  std::vector<std::string> files;  ///< published rows; none: those that come with the project
  std::vector<std::string> calibrations;
  std::string stack;  ///< for rows whose stack is not in the catalogue
  bool cross_validate = false;
  bool headlines = false;
  std::string html;        ///< page to write
  std::string intervals;   ///< file of intervals to write
  std::string strangers;   ///< the same, but only strangers' spreads
  std::string fit_stacks;  ///< folder of stacks to rewrite with numbers fitted to the rows
};

constexpr const char* kHeadlines = "tests/validation/headlines";

/// Simulates the files of tests/validation/headlines.
base::Result<std::vector<cost::HeadlineResult>> headlines_of(const Catalog& catalog, const sim::Library& library) {
  if (!catalog.find(kHeadlines, "headlines"))
    return base::fail("E0201", fmt::format("{}/headlines.yaml does not exist", kHeadlines));
  std::vector<cost::HeadlineResult> all;
  for (const std::string& name : catalog.names(kHeadlines)) {
    const auto entry = catalog.find(kHeadlines, name);
    auto parsed = sim::parse_headlines(entry->text, entry->path.string());
    if (!parsed) return base::fail(parsed.error());
    for (cost::HeadlineResult& one : sim::predict_headlines(*parsed, library)) all.push_back(std::move(one));
  }
  return all;
}

/// What the steps of one validation share.
struct Work {
  const ValidateOptions& options;
  const Outputs& outputs;
  const std::vector<sim::Row>& rows;
  const sim::Library library;
  const std::vector<cost::Stack>& stacks;
  const cost::Intervals& known;  ///< the existing intervals
  sim::Cases cases;
  Progress& progress;

  [[nodiscard]] static bool go_on() { return !Interrupt::requested(); }
};

/// Writes fitted numbers to each stack's own file, if it changes.
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
    work.outputs.write(file, *changed);
    written.push_back(file.string());
  }
  return written;
}

bool of_strangers(const cost::Spread& spread) {
  return spread.stack == cost::kStrangers;
}

/// What no carried row says, strangers' spreads and `elsewhere`, stays.
void write_intervals(const Work& work, const cost::CrossValidation& left_out) {
  std::vector<cost::Stack> published;
  for (const cost::Stack& stack : work.stacks)
    if (!stack.own && !stack.generic)  // Orrery's own stacks are measured, not published
      published.push_back(stack);
  cost::Intervals intervals =
      sim::intervals_from(work.rows, work.cases, left_out, published, sim::generic_spreads(work.rows, work.library));
  std::copy_if(work.known.spreads.begin(), work.known.spreads.end(), std::back_inserter(intervals.spreads),
               of_strangers);
  intervals.elsewhere = work.known.elsewhere;
  work.outputs.write(work.options.intervals, cost::write_intervals(intervals));
}

/// Replaces the spreads of strangers, as far as the rows show any; all others stay.
void write_strangers(const Work& work, const cost::Validation& validation) {
  cost::Intervals intervals = work.known;
  std::erase_if(intervals.spreads, of_strangers);
  for (cost::Spread& spread : sim::strangers_spreads(work.rows, work.cases, validation)) {
    for (const cost::Spread& before : work.known.spreads) {
      if (!of_strangers(before) || before.several_nodes != spread.several_nodes) continue;
      if (spread.time == cost::kNothingSeen) spread.time = before.time;
    }
    intervals.spreads.push_back(std::move(spread));
  }
  work.outputs.write(work.options.strangers, cost::write_intervals(intervals));
}

/// Does the fits that are asked for: --fit-stacks, --cross-validate, --intervals. False: stopped, and nothing is to be
/// shown or written.
base::Result<bool> with_fits(Work& work, cost::Validation& validation, std::vector<cost::FamilyFit>& fits,
                             std::vector<std::string>& written) {
  auto families = sim::stack_families(work.stacks);
  if (!families) return base::fail(families.error());
  sim::StackFitter fitter(work.rows, work.cases, std::move(*families));
  if (!work.options.fit_stacks.empty()) {
    std::size_t asked = 0;
    fits = sim::fit_stacks(fitter, work.rows, work.cases, work.stacks, [&] {
      work.progress.line(fmt::format("fitting: {} combinations tried", ++asked));
      return Work::go_on();
    });
    if (!Work::go_on()) return false;
  }
  if (work.options.cross_validate || !work.options.intervals.empty()) {
    validation.cross_validation = sim::cross_validate(work.rows, work.cases, fitter, Work::go_on, [&](double share) {
      constexpr int kWidth = 30;
      work.progress.line(fmt::format("leaving out {}", bar(share, kWidth)));
    });
    if (!validation.cross_validation->complete) return false;
  }
  work.progress.clear();
  if (!work.options.fit_stacks.empty()) {
    auto files = write_stacks(work, fits);
    if (!files) return base::fail(files.error());
    written = std::move(*files);
  }
  if (!work.options.intervals.empty()) {
    write_intervals(work, *validation.cross_validation);
    written.push_back(work.options.intervals);
  }
  return true;
}

/// Adds the findings, for people and for scripts.
void show(Outcome& outcome, const Context& context, const cost::Validation& validation,
          const std::vector<cost::FamilyFit>& fits, const std::vector<cost::HeadlineResult>& headlines) {
  const reports::TableStyle& style = context.terminal.style;
  nlohmann::json json = reports::validate_json(validation);
  if (!fits.empty()) {
    json.update(reports::stack_fits_json(fits));
    outcome.text += reports::stack_fits_text(fits, style) + "\n";
  }
  if (validation.cross_validation)
    outcome.text += reports::cross_validation_text(*validation.cross_validation, style) + "\n";
  if (!headlines.empty()) {
    json["headlines"] = reports::headlines_json(headlines);
    outcome.text += reports::text_of(reports::headlines_table(headlines), style);
  }
  if (outcome.text.empty()) outcome.text = reports::validation_text(validation, style);
  outcome.json = json.dump();
}

/// "mine.yaml, ours.csv": where the rows come from.
std::string files_of(const ValidateOptions& options) {
  if (options.files.empty()) return "published runs that come with Orrery";
  return fmt::format("rows of {}", fmt::join(options.files, ", "));
}

Outcome run_validate(const ValidateOptions& options, const Context& context) {
  const auto say = [&](const std::string& line) {
    print_early(reports::wrapped(line, context.terminal.style.width) + "\n", context.json, context.terminal);
  };
  Progress progress(context.terminal.progress && !context.quiet);
  say(fmt::format("Against {}", files_of(options)));
  progress.line("reading rows");
  base::Diagnostics unread;
  const auto rows = load_rows(context.catalog, options.files, sim::Origin::published, &unread);
  progress.clear();
  if (!rows) return bad_input(rows.error());
  std::set<std::string> sources;
  for (const sim::Row& row : *rows) sources.insert(row.setup.source);
  say(fmt::format("{} given, of {}", base::count_of(std::ssize(*rows), "row"),
                  base::count_of(std::ssize(sources), "source")));
  progress.line("reading what the rows name");
  auto library = load_library(context.catalog, options.calibrations, options.stack, "");
  if (!library) return bad_input(library.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  const Interrupt interrupt;
  std::vector<cost::HeadlineResult> headlines;
  if (options.headlines) {
    auto found = headlines_of(context.catalog, *library);
    if (!found) return bad_input(found.error());
    headlines = std::move(*found);
  }
  Work work{options,
            context.outputs,
            *rows,
            *library,
            library->stacks,
            *intervals,
            sim::make_cases(*rows, *library,
                            [&](std::size_t done) {
                              progress.line(fmt::format("making plans of {} of {} rows", done, rows->size()));
                              return Work::go_on();
                            }),
            progress};
  const auto told = [&](std::size_t begun) {
    work.progress.line(fmt::format("replaying {} of {} rows", begun + 1, work.cases.ready.size()));
  };
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cost::Validation validation =
      sim::validate(*rows, work.cases, *intervals, {threads, told, &Interrupt::requested(), &library->stacks});
  work.progress.clear();
  Outcome outcome;
  outcome.diagnostics = std::move(unread);
  if (!Work::go_on()) outcome.exit_code = kInterrupted;
  std::vector<cost::FamilyFit> fits;
  std::vector<std::string> written;
  if (options.cross_validate || !options.fit_stacks.empty() || !options.intervals.empty()) {
    const auto done = with_fits(work, validation, fits, written);
    if (!done) return bad_input(done.error());
    if (!*done) {
      outcome.exit_code = kInterrupted;
      return outcome;
    }
  }
  if (!options.strangers.empty() && Work::go_on()) {
    write_strangers(work, validation);
    written.push_back(options.strangers);
  }
  show(outcome, context, validation, fits, headlines);
  if (!options.html.empty()) {
    context.outputs.write(options.html,
                          reports::validation_html(validation, headlines, chart_library(outcome.diagnostics)));
    written.push_back(options.html);
  }
  if (!written.empty() || !options.fit_stacks.empty()) {
    nlohmann::json json = nlohmann::json::parse(outcome.json);
    json["written"] = written;
    outcome.json = json.dump();
  }
  for (const std::string& file : written) outcome.text += fmt::format("\n{} {}", context.outputs.wrote(), file);
  if (!written.empty()) outcome.text += "\n";
  return outcome;
}

void add_validate_flags(Flags flags, ValidateOptions& o) {
  flags.option("FILE", o.files, "Rows; default: those that come with Orrery");
  flags.option("--stack", o.stack, "For rows whose stack is not in the catalogue").value("STACK.yaml");
  flags.flag("--cross-validate", o.cross_validate,
             "Fit the stacks' numbers with one source left out at a time, and judge them by that source");
  flags.flag("--headlines", o.headlines,
             "Simulate what the sources are known for, and compare with what they published");
  flags.option("--html", o.html, "Write the report as a page").value("FILE.html");
  flags
      .option("--intervals", o.intervals,
              "Write the intervals of predictions, from rows left out (cost/intervals.yaml)")
      .value("FILE");
  flags
      .option("--strangers", o.strangers,
              "Write the intervals of unknown software, from these rows of strangers; all others stay")
      .value("FILE")
      .excludes("--intervals");  // they are of other rows, and each keeps what the other writes
  flags
      .option("--fit-stacks", o.fit_stacks,
              "Fit the stacks' numbers to these rows and write them into the stacks in this folder")
      .value("DIR");
  add_calibrations(flags, o.calibrations);
}

}  // namespace

Verb validate_verb() {
  return verb_of<ValidateOptions>({
      .name = "validate",
      .says = "Compare predictions with published measurements",
      .examples =
          "  orrery validate                                        against the published runs that are carried\n"
          "  orrery validate mine.yaml --html page.html             against your own",
      .flags = add_validate_flags,
      .run = run_validate,
      .outputs = [](const ValidateOptions& o) -> std::vector<OutputFile> {
        return {{o.html, FileKind::page}, {o.intervals, FileKind::intervals}, {o.strangers, FileKind::intervals}};
      },
      .inputs = [](const ValidateOptions& o) -> std::vector<std::string> {
        return all_of({o.files, o.calibrations, {o.stack}});
      },
  });
}

}  // namespace orrery::apps
