// Reads the object that a verb printed: its plans as plan files are read, its figures as they stand.
#include "apps/verbs/report/report_saved.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "apps/files.h"
#include "apps/verbs/plan/plan_rows.h"
#include "plan/spec/plan_file.h"

namespace orrery::apps {
namespace {

using base::Cursor;

reports::SavedPrediction read_row(const Cursor& row, const plan::PlanSpec& spec) {
  reports::SavedPrediction out = reports::read_prediction(row);
  out.prediction.spec = spec;
  return out;
}

/// The plans that `plan` printed, and what they rest on.
cost::SearchResult read_plans(const Cursor& result, reports::PlanHeading& heading) {
  cost::SearchResult out = reports::read_search(result.at("search"));
  for (const Cursor& row : result.at("plans").items()) {
    reports::SavedPrediction saved = read_row(row, plan::read_plan_file(row.at("plan")).spec);
    rest_on(heading, saved);
    out.plans.push_back(std::move(saved.prediction));
  }
  return out;
}

}  // namespace

void rest_on(reports::PlanHeading& heading, const reports::SavedPrediction& saved) {
  const auto stage = static_cast<std::size_t>(std::clamp(saved.prediction.spec.states.zero_stage, 0, 3));
  reports::Evidence& entry = heading.evidence.at(heading.by_zero.at(stage));
  std::string stack = saved.evidence.stack.empty() ? std::move(entry.stack) : saved.evidence.stack;
  entry = saved.evidence;
  entry.stack = std::move(stack);
}

base::Result<SavedPlan> load_saved(const Catalog& catalog, const std::string& name, const cost::Intervals& intervals) {
  const auto text = read_argument(name);
  if (!text) return base::fail(text.error());
  const base::Document document = base::Document::parse(*text, name);
  if (!document.root().exists()) return base::fail(document.findings().all());
  const Cursor root = document.root(), command = root.at("command"), result = root.optional("result");
  root.ignore();
  const std::string verb = command.text();
  const bool searched = verb == "plan";
  const auto refused = [&](std::string message, std::string help) {
    command.error("E0125", std::move(message), std::move(help));
    return base::fail(document.findings().all());
  };
  if (verb != "simulate" && !searched)
    return refused(fmt::format("this is what {} prints, which is no prediction", base::quoted("orrery " + verb)),
                   "`orrery plan` and `orrery simulate` print predictions with --json; of a run name its directory");
  if (!result.exists() || (searched && result.at("plans").items().empty()))
    return refused(fmt::format("`orrery {}` printed no prediction, but why there is none", verb),
                   "its `diagnostics` say what to do");
  const Cursor row = searched ? result.at("plans").items().front() : result;
  auto loaded = load_plan_in(catalog, document, row.at(searched ? "plan" : "plan_file"));
  if (!loaded) return base::fail(loaded.error());
  reports::SavedPrediction saved = read_row(row, loaded->plan.spec());
  SavedPlan out{std::move(*loaded), std::move(saved), {}, {}};
  if (searched) {
    out.search_heading = heading_of(out.loaded, intervals, {});
    out.search = read_plans(result, out.search_heading);
  }
  document.findings().sort();
  if (document.findings().failed()) return base::fail(document.findings().all());
  return out;
}

}  // namespace orrery::apps
