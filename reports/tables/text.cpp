/// Puts tables together as the verbs print them.
#include "reports/tables/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/units.h"
#include "reports/tables/plan_table.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

std::string styled(const std::string& text, const TableStyle& style) {
  return style.unicode ? text : to_ascii(text);
}

std::string heading(const std::string& text, const TableStyle& style) {
  const std::string shown = styled(text, style);
  return style.colour ? "\x1b[1m" + shown + "\x1b[0m\n" : shown + "\n";
}

/// A two-column table of names and values, without head and rule.
std::string figures(const Table& table, const TableStyle& style) {
  std::size_t width = 0;
  for (const auto& row : table.rows) width = std::max(width, display_width(row[0]));
  std::string out;
  for (const auto& row : table.rows) {
    const std::string line =
        "  " + styled(row[0], style) + std::string(width - display_width(row[0]) + 2, ' ') + styled(row[1], style);
    out += wrapped(line, style.width, width + 4) + "\n";
  }
  return out;
}

}  // namespace

std::string plan_text(const cost::SearchResult& result, const TableStyle& style) {
  return plan_text(result, plans_table(result), {}, style);
}

std::string plan_text(const cost::SearchResult& result, const Table& plans, const PlanHeading& heading_of,
                      const TableStyle& style) {
  std::string out;
  if (!heading_of.model.empty())
    out = evidence_text(
              result.plans.empty() ? heading_of.evidence.front() : heading_of.evidence_of(result.plans.front().spec),
              style) +
          "\n";
  const auto lines = [&](const std::string& text, std::size_t indent) {
    out += wrapped(styled(text, style), style.width, indent) + "\n";
  };
  if (result.plans.empty()) {
    out += heading("No feasible plan", style);  // what to relax stands in the error
  } else {
    out += text_of(plans, style);
    if (!result.plans.front().tables.empty()) out += "\n" + text_of(tables_table(result.plans.front()), style);
  }
  std::string line = fmt::format("{}, {} feasible, {} evaluated", count_text(result.candidates, "candidate"),
                                 count_text(result.feasible), count_text(result.evaluated));
  if (result.simulated > 0) line += fmt::format(", {} replayed", count_text(result.simulated));
  line += fmt::format(", in {}.", time_text(result.seconds));
  if (result.interrupted)
    line += " Interrupted: there may be better plans among the candidates that were not evaluated.";
  else if (result.optimality_gap.value_or(0) > 0)
    line += fmt::format(" A plan that was not replayed may be up to {} better.", percent(*result.optimality_gap));
  out += "\n";
  lines(line, 0);
  if (!result.rejected.empty()) out += "\n" + text_of(rejections_table(result), style);
  return out;
}

std::string prediction_text(const cost::Prediction& prediction, const TableStyle& style) {
  std::string out = heading(wrapped(plan::describe(prediction.spec), style.width, 2), style);
  if (!prediction.on_torus.empty()) out += wrapped("Ranks: " + prediction.on_torus + ".", style.width, 2) + "\n\n";
  out += figures(summary_table(prediction), style);
  out += "\n" + text_of(breakdown_table(prediction.breakdown), style);
  if (!prediction.memory.empty())
    out += "\n" + text_of(memory_table(prediction.memory, prediction.memory_capacity_bytes), style);
  if (!prediction.communication.empty()) out += "\n" + text_of(communication_table(prediction.communication), style);
  if (!prediction.tables.empty()) out += "\n" + text_of(tables_table(prediction), style);
  if (!prediction.links.empty()) out += "\n" + text_of(links_table(prediction.links), style);
  return out;
}

std::string fit_text(const cost::FitResult& fit, const TableStyle& style) {
  std::string out = text_of(parameters_table(fit.parameters), style);
  if (!fit.residuals.empty()) out += "\n" + text_of(residuals_table(fit.residuals), style);
  if (!fit.operators.empty()) out += "\n" + text_of(operators_table(fit.operators), style);
  out += "\n" + styled(fmt::format("Mean error over the spans: {} before, {} after", percent(fit.error_before),
                                   percent(fit.error_after)),
                       style);
  const bool any_held_out =
      std::any_of(fit.residuals.begin(), fit.residuals.end(), [](const cost::Residual& r) { return r.held_out; });
  if (any_held_out || fit.held_out_error_after > 0)
    out += styled(fmt::format("; on spans held out: {}", percent(fit.held_out_error_after)), style);
  out += ".\n";
  out += styled(fmt::format("Weighted by time: {} before, {} after.", percent(fit.time_weighted_error_before),
                            percent(fit.time_weighted_error_after)),
                style) +
         "\n";
  for (const std::string& note : fit.notes) out += wrapped(styled("note: " + note, style), style.width, 2) + "\n";
  return out;
}

double held_out_error(const std::vector<cost::MeasuredRun>& runs, double max_spread) {
  std::vector<double> errors;
  for (const cost::MeasuredRun& run : runs) {
    if (run.used_in_fit || run.oversubscribed || run.step_time_spread > max_spread) continue;
    if (run.step_time_s > 0 && run.predicted_after_s > 0)
      errors.push_back(relative_error(run.predicted_after_s, run.step_time_s));
  }
  if (errors.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(errors.begin(), errors.end());
  const std::size_t n = errors.size();
  return n % 2 == 1 ? errors[n / 2] : (errors[n / 2 - 1] + errors[n / 2]) / 2;
}

std::string runs_text(const std::vector<cost::MeasuredRun>& runs, const TableStyle& style) {
  std::string out = text_of(runs_table(runs), style);
  const double error = held_out_error(runs);
  const bool held_out =
      std::any_of(runs.begin(), runs.end(), [](const cost::MeasuredRun& r) { return !r.used_in_fit; });
  if (error == error)
    out +=
        styled(fmt::format("Median error of the step time on runs not used in the fit: {}.", percent(error)), style) +
        "\n";
  else if (held_out)
    out += styled(
               "No run can be judged: all that were not used in the fit have a spread over 10 % or crowd the cores. "
               "Measure again when the machine is quiet.",
               style) +
           "\n";
  return out;
}

std::string first_other_choice(const std::vector<std::vector<ExpertLoad>>& run,
                               const std::vector<std::vector<ExpertLoad>>& serial) {
  for (std::size_t step = 0; step < std::min(run.size(), serial.size()); ++step)
    for (std::size_t layer = 0; layer < std::min(run[step].size(), serial[step].size()); ++layer) {
      const ExpertLoad &mine = run[step][layer], &theirs = serial[step][layer];
      const std::string at = fmt::format("step {}, layer {}", step + 1, mine.layer);
      for (std::size_t e = 0; e < std::min(mine.tokens.size(), theirs.tokens.size()); ++e)
        if (mine.tokens[e] != theirs.tokens[e])
          return fmt::format("{}: expert {} has {:.0f} tokens, serially {:.0f}", at, e, mine.tokens[e],
                             theirs.tokens[e]);
      if (mine.fullest != theirs.fullest)
        return fmt::format("{}: the fullest expert has {:.3f} times the mean, serially {:.3f}", at, mine.fullest,
                           theirs.fullest);
    }
  return {};
}

std::string train_text(const TrainSummary& summary, const TableStyle& style) {
  Table table;
  table.rows = {{"run", summary.directory},
                {"backend", summary.backend},
                {"steps", fmt::format("{}{}", summary.steps, summary.completed ? "" : " (not completed)")},
                {"loss", fmt::format("{:.6g} → {:.6g}", summary.first_loss, summary.final_loss)},
                {"step time", time_text(summary.step_time_s) + " (median)"},
                {summary.samples ? "samples/s" : "tokens/s", number(summary.tokens_per_s)},
                {"memory peak", base::human(base::Bytes{summary.memory_peak_bytes}) + ", worst rank"}};
  if (summary.held_out_auc)
    table.rows.push_back(
        {"AUC", fmt::format("{:.4f} on held-out samples{}", *summary.held_out_auc,
                            summary.best_auc ? fmt::format(", {:.4f} at best", *summary.best_auc) : std::string())});
  if (summary.restarts > 0) table.rows.push_back({"restarts", fmt::format("{}", summary.restarts)});
  if (summary.bad_lines) table.rows.push_back({"bad lines", fmt::format("{} skipped", *summary.bad_lines)});
  if (summary.checkpoints > 0)
    table.rows.push_back(
        {"checkpoints", fmt::format("{} of {} in total: held up training for {}, written in the background in {}",
                                    summary.checkpoints, base::human(base::Bytes{summary.checkpoint_bytes}),
                                    time_text(summary.checkpoint_pause_s), time_text(summary.checkpoint_write_s))});
  if (summary.lossless_tensors > 0)
    table.rows.push_back({"without zeros", fmt::format("{} tensors, {} of them recomputed; at most {:.1f} % nonzero",
                                                       summary.lossless_tensors, summary.lossless_again,
                                                       100 * summary.lossless_densest)});
  if (const auto& s = summary.serial)
    table.rows.push_back({"against serial", fmt::format("{}: loss {:.1e}, gradient {:.1e} at step 1, {:.1e} at step {} "
                                                        "(bounds {:.0e} and {:.0e})",
                                                        s->equal ? "equal" : "NOT EQUAL", s->loss, s->gradient_first,
                                                        s->gradient_last, s->steps, s->bound, s->gradient_bound)});
  if (const auto& s = summary.serial; s && !s->equal && s->gradient_first <= s->gradient_bound && s->steps > 1)
    table.rows.push_back({"first step",
                          "equal: either the later steps amplify its rounding, most where a loss jumps, or "
                          "an update differs; fewer --steps tell"});
  if (const auto& s = summary.serial; s && s->rounding)
    table.rows.push_back(
        {"rounding alone", fmt::format("loss {:.1e}, gradient {:.1e} at step 1, {:.1e} at step {}: the "
                                       "serial program against itself in micro-batches of {}",
                                       s->rounding->loss, s->rounding->gradient_first, s->rounding->gradient_last,
                                       s->steps, s->rounding->micro_batch)});
  if (const auto& s = summary.serial; s && !s->equal && !s->rounded.empty())
    table.rows.push_back({"only split", s->rounded});
  if (const auto& s = summary.serial; s && !s->other_choices.empty())
    table.rows.push_back({"other choices", s->other_choices + "; rounding decides between experts of nearly equal "
                                                              "scores, and all later numbers follow"});
  return figures(table, style);
}

}  // namespace orrery::reports
