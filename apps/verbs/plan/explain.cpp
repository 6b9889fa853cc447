// explain: whether a plan fits and why not, where its time and memory go, and how it differs from another.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/verbs/plan/evidence.h"
#include "apps/verbs/plan/explain.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/plan/what_if.h"
#include "base/units.h"
#include "reports/explanation.h"
#include "reports/json.h"
#include "reports/tables/binding.h"
#include "reports/tables/tables.h"
#include "sim/explain/what_if.h"

namespace orrery::apps {
namespace {

struct Explained {
  std::string name;  ///< as the user named it
  cost::Prediction prediction;
  reports::PlanHeading heading;
  [[nodiscard]] bool fits() const { return prediction.memory_peak_bytes <= prediction.memory_capacity_bytes; }
};

/// Uses the replay that `simulate` prints.
Explained explain(const LoadedPlan& loaded, const std::string& path, const cost::Intervals& intervals,
                  const std::vector<cost::Calibration>& calibrations) {
  return Explained{path, replay_of(loaded, calibrations), heading_of(loaded, intervals, calibrations)};
}

/// What fills the device on the fullest stage, by purpose, largest first.
base::Diagnostic does_not_fit(const Explained& one) {
  const cost::MemoryRow* worst = nullptr;
  for (const cost::MemoryRow& row : one.prediction.memory)
    if (worst == nullptr || row.total > worst->total) worst = &row;
  std::string parts;
  if (worst != nullptr)
    for (const auto& [purpose, bytes] : worst->by_purpose)
      if (bytes > 0)
        parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", purpose, base::human(base::Bytes{bytes}));
  return {base::Severity::error,
          "P91",
          {one.name, 1, 1, 1},
          fmt::format("stage {} needs {} of {}: {}", worst == nullptr ? plan::kFirstStage : worst->stage,
                      base::human(base::Bytes{one.prediction.memory_peak_bytes}),
                      base::human(base::Bytes{one.prediction.memory_capacity_bytes}), parts),
          "a higher ZeRO stage, recomputation, a smaller micro-batch, or a higher tensor or pipeline degree needs less",
          {}};
}

/// Also adds to `text` what the figures rest on.
nlohmann::json json_of(const Explained& one, std::string& text, const reports::TableStyle& style) {
  nlohmann::json out = reports::simulate_json(one.prediction);
  add_evidence(one.heading, one.prediction, true, out, text, style);
  out["file"] = one.name;
  out["fits"] = one.fits();
  out["split"] = reports::spec_json(one.prediction.spec);
  const reports::Binding binds = reports::binding_of(one.prediction);
  out["binds"] = {{"part", binds.part}, {"seconds", binds.seconds}, {"share", binds.share}, {"text", binds.sentence}};
  return out;
}

std::string difference(double a, double b) {
  if (a == b) return "same";
  if (a == 0) return "new";
  if (constexpr double kMany = 10; b > kMany * a) return fmt::format("{:.0f} times", b / a);
  return fmt::format("{:+.1f} %", 100 * (b - a) / a);
}

reports::Table comparison(const Explained& a, const Explained& b) {
  using reports::Align;
  reports::Table table;
  table.title = "How the plans differ";
  table.columns = {{"", Align::left}, {a.name}, {b.name}, {"difference"}};
  const auto row = [&](const char* name, double x, double y, const auto& text) {
    table.rows.push_back({name, text(x), text(y), difference(x, y)});
  };
  const auto seconds = [](double x) { return base::human(base::Seconds{x}); };
  const auto bytes = [](double x) { return base::human(base::Bytes{x}); };
  const auto share = [](double x) { return reports::percent(x); };
  const cost::Prediction &p = a.prediction, &q = b.prediction;
  row("step time", p.step_time_s, q.step_time_s, seconds);
  row("memory peak", p.memory_peak_bytes, q.memory_peak_bytes, bytes);
  row("MFU", p.mfu, q.mfu, share);
  row("bubble", p.bubble_fraction, q.bubble_fraction, share);
  row("exposed communication", p.exposed_communication_s, q.exposed_communication_s, seconds);
  const auto before = reports::parts_of(p.breakdown), after = reports::parts_of(q.breakdown);
  for (std::size_t i = 0; i < before.size(); ++i) row(before[i].name, before[i].seconds, after[i].seconds, seconds);
  return table;
}

/// What two plans do not have in common besides their splits, so that their steps are not the same work.
std::vector<std::string> apart(const LoadedPlan& a, const LoadedPlan& b, const Explained& first,
                               const Explained& second) {
  std::vector<std::string> out;
  const auto say = [&](const char* what, const std::string& one, const std::string& other) {
    if (one != other) out.push_back(fmt::format("{}: {} beside {}.", what, one, other));
  };
  say("Different models", a.plan.model().name, b.plan.model().name);
  say("Different clusters", a.plan.cluster().name, b.plan.cluster().name);
  const auto software = [](const LoadedPlan& one) {
    const std::string set_up = plan::software_text(one.file.job.software);
    return one.stack.name + (set_up.empty() ? "" : fmt::format(" ({})", set_up));
  };
  say("Different software", software(a), software(b));
  const auto tokens = [](const Explained& one) {
    return base::human_count(one.prediction.tokens_per_s * one.prediction.step_time_s);
  };
  if (tokens(first) != tokens(second))
    out.push_back(fmt::format("A step has {} {} beside {}: {} and {} a second.", tokens(first),
                              first.heading.samples ? "samples" : "tokens", tokens(second),
                              base::human_count(first.prediction.tokens_per_s),
                              base::human_count(second.prediction.tokens_per_s)));
  return out;
}

Outcome run_explain(const ExplainOptions& options, const Context& context) {
  const std::array<bool, 3> asked = {!options.plan.empty(), !options.cluster.empty(), options.clusters};
  if (std::ranges::count(asked, true) != 1)
    return usage("give either a plan, --cluster or --clusters", "`orrery help explain` shows an example of each");
  if (options.plan.empty()) return explain_cluster(options, context);
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  const auto loaded = load_plan_argument(context.catalog, options.plan);
  if (!loaded) return bad_input(loaded.error());
  const Explained first = explain(*loaded, options.plan, *intervals, *calibrations);

  Outcome outcome;
  nlohmann::json out = {{"plan", nullptr}, {"versus", nullptr}};
  const reports::TableStyle& style = context.terminal.style;
  const auto tell = [&](const Explained& one, const char* key) {
    outcome.text += reports::wrapped(reports::binding_of(one.prediction).sentence, style.width) + "\n" +
                    reports::wrapped(one.name + ": " + plan::describe(one.prediction.spec), style.width, 2) + "\n";
    out[key] = json_of(one, outcome.text, style);
    if (one.fits()) return;
    outcome.diagnostics.push_back(does_not_fit(one));
    outcome.exit_code = kInfeasible;
  };
  tell(first, "plan");
  if (options.versus.empty()) {
    // One replay says this much; the machines and neighbours below take many.
    print_early(outcome.text + "\n" + reports::text_of(reports::breakdown_table(first.prediction.breakdown), style) +
                    "\n" +
                    reports::text_of(
                        reports::memory_table(first.prediction.memory, first.prediction.memory_capacity_bytes), style),
                context.json, context.terminal);
    outcome.text.clear();
    const Interrupt interrupt;
    Progress progress(context.terminal.progress);
    const sim::Question question = question_of(*loaded, *calibrations, *intervals);
    const auto go_on = [&](const std::string& what) {
      progress.line("replaying: " + what);
      return !Interrupt::requested();
    };
    const std::vector<cost::Variation> machines = sim::with_other_machines(question, go_on);
    const std::vector<cost::Variation> others = sim::neighbours(question, go_on);
    progress.clear();
    const auto add = [&](const char* key, const char* title, const std::vector<cost::Variation>& variations) {
      out[key] = reports::variations_json(variations, first.prediction, first.heading);
      if (variations.empty()) return;
      outcome.text +=
          "\n" + reports::text_of(
                     reports::variations_table(title, variations, first.prediction, first.heading, style.width), style);
    };
    add("changes", "On another machine", machines);
    add("neighbours", "Neighbours of this plan", others);
    if (Interrupt::requested()) outcome.exit_code = kInterrupted;
  } else {
    const auto other = load_plan_argument(context.catalog, options.versus);
    if (!other) return bad_input(other.error());
    const Explained second = explain(*other, options.versus, *intervals, *calibrations);
    outcome.text += "\n";
    tell(second, "versus");
    outcome.text += "\n" + reports::text_of(comparison(first, second), style);
    for (const std::string& line : apart(*loaded, *other, first, second))
      outcome.text += reports::wrapped(line, style.width) + "\n";
  }
  outcome.json = out.dump();
  return outcome;
}

void add_explain_flags(Flags flags, ExplainOptions& o) {
  flags.option("PLAN", o.plan, "Plan file to explain");
  flags.option("--cluster", o.cluster, "Instead of a plan, a cluster: catalogue name or file").value("CLUSTER");
  flags.flag("--clusters", o.clusters, "Instead of a plan, all clusters in the catalogue");
  flags.option("--vs", o.versus, "Plan file to compare with").value("PLAN");
  add_calibrations(flags, o.calibrations);
}

}  // namespace

Verb explain_verb() {
  return verb_of<ExplainOptions>({
      .name = "explain",
      .says = "Show where a plan's time and memory go, how two plans differ, or what a cluster consists of",
      .examples = "  orrery explain plan.yaml                               what binds, and what would change it\n"
                  "  orrery explain plan.yaml --vs other.yaml               how two plans differ\n"
                  "  orrery explain --cluster dgx-1v                        a machine's links and channels",
      .flags = add_explain_flags,
      .run = run_explain,
      .inputs = [](const ExplainOptions& o) -> std::vector<std::string> {
        return all_of({{o.plan, o.versus, o.cluster}, o.calibrations});
      },
  });
}

}  // namespace orrery::apps
