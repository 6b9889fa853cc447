/// Validation as tables and text.
#include "reports/validation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/units.h"
#include "cost/parameters/parameters.h"
#include "reports/tables/plan_table.h"
#include "reports/tables/tables.h"

namespace orrery::reports {

namespace {

Table numbers_table(const std::vector<cost::FamilyFit>& fits) {
  Table table;
  table.title = "Numbers fitted to published rows";
  table.columns = {{"stack", Align::left},
                   {"number", Align::left},
                   {"before", Align::right},
                   {"after", Align::right},
                   {"source", Align::left, 60}};
  for (const cost::FamilyFit& fit : fits)
    for (const cost::FittedNumber& n : fit.numbers) {
      const cost::Unit unit = cost::unit_of(n.parameter);
      table.rows.push_back({n.stack, n.parameter, cost::parameter_text(n.before, unit),
                            n.after == n.before ? "same" : cost::parameter_text(n.after, unit), n.source});
    }
  return table;
}

Table families_table(const std::vector<cost::FamilyFit>& fits) {
  Table table;
  table.title = "Median error in-sample";
  table.columns = {
      {"stacks", Align::left, 60}, {"rows", Align::right}, {"before", Align::right}, {"after", Align::right}};
  for (const cost::FamilyFit& fit : fits)
    table.rows.push_back({fmt::format("{}", fmt::join(fit.stacks, ", ")), fmt::format("{}", fit.rows),
                          percent(fit.error_before), percent(fit.error_after)});
  return table;
}

/// "3.10–5.20 s"; a dash without an interval.
std::string range_of(const cost::ValidatedRow& row) {
  return row.time_s ? interval_text(*row.time_s) : "—";
}

/// The probability that the run fits its devices' memory.
std::string probability_of(const cost::ValidatedRow& row) {
  return row.fits_probability ? fmt::format("{:.2f}", *row.fits_probability) : "—";
}

}  // namespace

Table sources_table(const cost::Validation& v) {
  Table table;
  table.title = "Predicted against published step times";
  table.columns = {{"source", Align::left},
                   {"rows", Align::right},
                   {"median error", Align::right},
                   {"mean", Align::right},
                   {"90th percentile", Align::right}};
  const auto add = [&](const std::string& name, const cost::ErrorSummary& e) {
    table.rows.push_back({name, std::to_string(e.count), percent(e.median), percent(e.mean), percent(e.p90)});
  };
  for (const cost::SourceErrors& s : v.by_source) add(s.source, s.time);
  if (v.time.count > 0) add("all", v.time);
  if (v.memory.count > 0) add("peak memory", v.memory);
  std::int64_t fitted = 0, judged = 0, inside = 0;
  for (const cost::ValidatedRow& row : v.rows) {
    if (!row.measured_s || row.out_of_memory) continue;
    fitted += row.evidence == cost::Basis::published ? 1 : 0;
    judged += row.time_s ? 1 : 0;
    inside += row.time_s && row.time_s->low <= *row.measured_s && *row.measured_s <= row.time_s->high ? 1 : 0;
  }
  if (judged > 0)
    table.notes.push_back(
        fmt::format("{} of {} are within their interval, which runs left out of all fits gave: four of five should be",
                    inside, judged));
  if (fitted > 0)
    table.notes.push_back(
        fmt::format("{} of software with numbers fitted to published runs: in-sample if theirs is among these sources; "
                    "--cross-validate shows the errors with each source left out",
                    count_text(fitted, "row")));
  return table;
}

Table stacks_table(const cost::Validation& v) {
  Table table;
  table.title = "By the software whose numbers were taken";
  table.columns = {{"stack", Align::left},
                   {"rows", Align::right},
                   {"numbers fitted", Align::right},
                   {"median error", Align::right},
                   {"90th percentile", Align::right}};
  for (const cost::StackErrors& s : v.by_stack)
    table.rows.push_back(
        {s.stack, count_text(s.rows), count_text(s.fitted_numbers), percent(s.time.median), percent(s.time.p90)});
  return table;
}

Table worst_rows_table(const cost::Validation& v, std::size_t most) {
  std::vector<const cost::ValidatedRow*> measured;
  for (const cost::ValidatedRow& row : v.rows)
    if (row.measured_s) measured.push_back(&row);
  const auto error = [](const cost::ValidatedRow* row) { return relative_error(row->predicted_s, *row->measured_s); };
  std::stable_sort(measured.begin(), measured.end(), [&](const auto* a, const auto* b) { return error(a) > error(b); });
  if (measured.size() > most) measured.resize(most);
  Table table;
  table.title = "Furthest off";
  table.columns = {{"row", Align::left},          {"measured", Align::right}, {"predicted", Align::right},
                   {"4 of 5 runs", Align::right}, {"error", Align::right},    {"evidence", Align::left, 0, 2},
                   {"source", Align::left, 0, 1}, {"plan", Align::left, 0, 3}};
  for (const cost::ValidatedRow* row : measured)
    table.rows.push_back({row->id, time_text(*row->measured_s), time_text(row->predicted_s), range_of(*row),
                          fmt::format("{:+.1f} %", 100 * (row->predicted_s / *row->measured_s - 1)),
                          cost::name_of(row->evidence), row->source, row->plan});
  return table;
}

Table unmeasured_table(const cost::Validation& v, std::size_t most) {
  Table table;
  table.title = "Predicted, without a measured time";
  table.columns = {{"row", Align::left},       {"predicted", Align::right}, {"4 of 5 runs", Align::right},
                   {"fits", Align::right},     {"evidence", Align::left},   {"source", Align::left, 0, 1},
                   {"plan", Align::left, 0, 2}};
  std::int64_t further = 0;
  for (const cost::ValidatedRow& row : v.rows) {
    if (row.measured_s || row.out_of_memory) continue;
    if (table.rows.size() < most)
      table.rows.push_back({row.id, time_text(row.predicted_s), range_of(row), probability_of(row),
                            cost::name_of(row.evidence), row.source, row.plan});
    else
      ++further;
  }
  if (further > 0) table.notes.push_back(fmt::format("{} more in --json", count_text(further, "row")));
  return table;
}

Table fits_table(const cost::Validation& v, std::size_t most) {
  constexpr double kEven = 0.5;
  Table table;
  table.title = "Told wrongly whether it fits memory, surest first";
  table.columns = {{"row", Align::left},       {"it", Align::left},       {"fits", Align::right},
                   {"needs", Align::right},    {"evidence", Align::left}, {"source", Align::left, 0, 1},
                   {"plan", Align::left, 0, 2}};
  std::vector<const cost::ValidatedRow*> wrong;
  std::int64_t ran = 0, died = 0, ran_told = 0, died_told = 0;
  for (const cost::ValidatedRow& row : v.rows) {
    if (!row.fits_probability) continue;
    const bool right = (*row.fits_probability < kEven) == row.out_of_memory;
    ++(row.out_of_memory ? died : ran);
    if (right) ++(row.out_of_memory ? died_told : ran_told);
    if (!right) wrong.push_back(&row);
  }
  std::stable_sort(wrong.begin(), wrong.end(), [](const auto* a, const auto* b) {
    return std::abs(*a->fits_probability - kEven) > std::abs(*b->fits_probability - kEven);
  });
  if (wrong.size() > most) wrong.resize(most);
  for (const cost::ValidatedRow* row : wrong)
    table.rows.push_back({row->id, row->out_of_memory ? "died" : "ran", probability_of(*row),
                          base::human(base::Bytes{row->predicted_bytes}), cost::name_of(row->evidence), row->source,
                          row->plan});
  if (ran > 0) table.notes.push_back(fmt::format("{} of {} that ran are predicted to fit", ran_told, ran));
  if (died > 0)
    table.notes.push_back(
        fmt::format("{} of {} that died for lack of memory are predicted not to fit", died_told, died));
  return table;
}

Table left_out_table(const cost::Validation& v) {
  std::map<std::pair<bool, std::string>, std::pair<std::int64_t, std::string>> reasons;
  for (const cost::LeftOutRow& row : v.left_out) {
    auto& [count, first] = reasons[{row.scorable, row.reason}];
    if (count++ == 0) first = row.id;
  }
  std::vector<std::pair<std::pair<bool, std::string>, std::pair<std::int64_t, std::string>>> order(reasons.begin(),
                                                                                                   reasons.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.first, a.second.first) > std::pair(b.first.first, b.second.first);
  });
  Table table;
  table.title = "Left out";
  table.columns = {{"rows", Align::right},
                   {"states all a score needs", Align::left},
                   {"reason", Align::left},
                   {"first", Align::left}};
  for (const auto& [key, value] : order)
    table.rows.push_back({std::to_string(value.first), key.first ? "yes" : "no", key.second, value.second});
  return table;
}

RegretSummary regret_of(const std::vector<cost::PlanGroup>& groups) {
  const auto median = [](std::vector<double> values) {
    if (values.empty()) return std::nan("");
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  };
  RegretSummary out{groups.size(), 0, groups.empty() ? std::nan("") : 1, 0};
  std::vector<double> regrets, correlations;
  for (const cost::PlanGroup& group : groups) {
    regrets.push_back(group.regret);
    out.worst = std::max(out.worst, group.regret);
    if (std::isfinite(group.rank_correlation)) correlations.push_back(group.rank_correlation);
  }
  out.median = median(std::move(regrets));
  out.rank_correlation = median(std::move(correlations));
  return out;
}

Table groups_table(const cost::Validation& v, std::size_t most) {
  std::vector<const cost::PlanGroup*> worst;
  for (const cost::PlanGroup& group : v.groups) worst.push_back(&group);
  std::stable_sort(worst.begin(), worst.end(), [](const auto* a, const auto* b) { return a->regret > b->regret; });
  if (worst.size() > most) worst.resize(most);
  Table table;
  table.title = "Which plan wins, worst first";
  table.columns = {{"source", Align::left, 30},       {"model, batch and machine", Align::left},
                   {"plans", Align::right},           {"regret", Align::right},
                   {"ranks agree", Align::right},     {"predicted best", Align::left, 44},
                   {"measured best", Align::left, 44}};
  for (const cost::PlanGroup* g : worst)
    table.rows.push_back({g->source, g->what, std::to_string(static_cast<std::int64_t>(g->plans)),
                          fmt::format("{:.3f}", g->regret),
                          std::isfinite(g->rank_correlation) ? fmt::format("{:+.2f}", g->rank_correlation) : "—",
                          g->predicted_best, g->predicted_best == g->measured_best ? "the same" : g->measured_best});
  const RegretSummary r = regret_of(v.groups);
  table.notes.push_back(
      fmt::format("{} groups of rows that differ only in plan: regret median {:.3f}, worst {:.3f}; rank correlation "
                  "(Spearman) median {:+.2f}",
                  r.groups, r.median, r.worst, r.rank_correlation));
  return table;
}

std::string validation_text(const cost::Validation& validation, const TableStyle& style) {
  constexpr std::size_t kWorst = 12;
  std::map<std::string, std::size_t> bases;
  for (const cost::ValidatedRow& row : validation.rows) ++bases[cost::name_of(row.evidence)];
  std::vector<std::string> words;
  for (const auto& [word, count] : bases) words.push_back(fmt::format("{} {}", count, word));
  std::string out = fmt::format(
      "{} predicted{}, {} left out\n\n", count_text(static_cast<std::int64_t>(validation.rows.size()), "row"),
      words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", ")), validation.left_out.size());
  std::vector<Table> tables = {sources_table(validation), stacks_table(validation)};
  if (validation.time.count > 0) tables.push_back(worst_rows_table(validation, kWorst));
  tables.push_back(unmeasured_table(validation, kWorst));
  tables.push_back(fits_table(validation, kWorst));
  if (!validation.groups.empty()) tables.push_back(groups_table(validation, kWorst));
  if (!validation.left_out.empty()) tables.push_back(left_out_table(validation));
  const char* between = "";
  for (const Table& table : tables) {
    if (table.rows.empty() && table.notes.empty()) continue;
    out += std::exchange(between, "\n");
    if (!table.rows.empty()) out += text_of(table, style);
    for (const std::string& note : table.rows.empty() ? table.notes : std::vector<std::string>())
      out += wrapped(note, style.width) + "\n";
  }
  return out;
}

Table folds_table(const cost::CrossValidation& v) {
  Table table;
  table.title = "Median error in-sample, with the fold left out, and with the stack's defaults alone";
  table.columns = {{"left out", Align::left, 60},    {"stacks", Align::left, 36}, {"rows", Align::right},
                   {"in-sample", Align::right},      {"left out", Align::right},  {"defaults", Align::right},
                   {"in the interval", Align::right}};
  for (const cost::FoldErrors& f : v.folds)
    table.rows.push_back({f.fold, fmt::format("{}", fmt::join(f.stacks, ", ")),
                          std::to_string(static_cast<std::int64_t>(f.rows)), percent(f.in_sample), percent(f.left_out),
                          percent(f.usual), percent(f.inside)});
  if (v.rows.empty()) return table;
  table.rows.push_back({"all", "", std::to_string(v.left_out.count), percent(v.in_sample.median),
                        percent(v.left_out.median), percent(v.usual.median), percent(v.inside)});
  table.notes.push_back(fmt::format(
      "left out over in-sample, median: {:.2f}; 90th percentile {} against {}; intervals: high over "
      "low {:.2f} (median)",
      v.left_out.median / v.in_sample.median, percent(v.left_out.p90), percent(v.in_sample.p90), std::exp(v.width)));
  return table;
}

std::string cross_validation_text(const cost::CrossValidation& v, const TableStyle& style) {
  return text_of(folds_table(v), style);
}

namespace {

/// What to know of a headline before it is believed.
std::string word_of(const cost::HeadlineResult& h) {
  std::string out = h.in_sample ? "in-sample" : "";
  if (h.fits) return out;
  out += out.empty() ? "" : ", ";
  // Where a device has room, it is the host's memory or the drives that have none.
  return out + (h.memory_share.value_or(0) > 1 ? fmt::format("does not fit ({:.2f})", *h.memory_share)
                                               : "does not fit (offloaded)");
}

}  // namespace

Table headlines_table(const std::vector<cost::HeadlineResult>& headlines) {
  Table table;
  table.title = "What the sources are known for";
  table.columns = {
      {"headline", Align::left, 72}, {"predicted", Align::right}, {"published", Align::right}, {"", Align::left},
      {"but", Align::left},          {"said", Align::left, 36},   {"source", Align::left, 40}};
  const auto text = [](const std::optional<double>& value) { return value ? fmt::format("{:.3g}", *value) : "—"; };
  for (const cost::HeadlineResult& h : headlines) {
    table.rows.push_back({h.what, text(h.predicted), text(h.published), h.unit, word_of(h), h.said, h.source});
    if (!h.reason.empty()) table.notes.push_back(fmt::format("not predicted: {}: {}", h.what, h.reason));
  }
  if (std::any_of(headlines.begin(), headlines.end(), [](const auto& h) { return h.in_sample; }))
    table.notes.push_back(
        "in-sample: read off a step time, by software with a number that was fitted to rows of the same source");
  if (std::any_of(headlines.begin(), headlines.end(), [](const auto& h) { return !h.fits; }))
    table.notes.push_back(
        "does not fit (x): the fullest of its runs needs x times a device's memory, so no such run is predicted to "
        "run");
  return table;
}

std::string stack_fits_text(const std::vector<cost::FamilyFit>& fits, const TableStyle& style) {
  return text_of(numbers_table(fits), style) + "\n" + text_of(families_table(fits), style);
}

}  // namespace orrery::reports
