/// A plan's page, comparisons and whole runs as tables and as JSON.
#include "reports/plan_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "plan/spec/fields.h"
#include "reports/explanation.h"
#include "reports/json.h"
#include "reports/tables/binding.h"
#include "reports/tables/tables.h"
#include "reports/tables/text.h"

namespace orrery::reports {
namespace {

using nlohmann::json;

const std::string kAbsent = "—";

std::string last_part(const std::string& name) {
  const std::size_t end = name.find_last_not_of('/');
  if (end == name.npos) return name;
  const std::size_t slash = name.rfind('/', end);
  return name.substr(slash == name.npos ? 0 : slash + 1, end - (slash == name.npos ? 0 : slash + 1) + 1);
}

/// Adds a row unless all texts are the same.
void add_if_different(Table& table, const std::string& what, std::vector<std::string> texts) {
  if (std::all_of(texts.begin(), texts.end(), [&](const std::string& t) { return t == texts.front(); })) return;
  texts.insert(texts.begin(), what);
  table.rows.push_back(std::move(texts));
}

Table table_with_columns(const std::string& first, const std::vector<Compared>& all) {
  Table table;
  table.columns = {{first, Align::left}};
  for (const std::string& name : short_names(all)) table.columns.push_back({name, Align::right});
  return table;
}

std::string ratio_text(double x, double first) {
  if (!(first > 0) || !std::isfinite(x)) return "";
  constexpr double kSmall = 0.1, kLarge = 10;  // between them, thousandths are what is known
  const double ratio = x / first;
  const bool near = ratio >= kSmall && ratio < kLarge;
  return near ? fmt::format(" (× {:.3f})", ratio) : fmt::format(" (× {})", estimate_text(ratio));
}

/// A figure of each thing; a dash where one has none.
struct Figure {
  const char* name;
  double (*of)(const Compared&, const PlanFigures&);
  std::string (*text)(double);
  bool ratio = true;                                   ///< whether its ratio is meaningful
  std::string (*whole)(const PlanFigures&) = nullptr;  ///< its text where a number is not enough
};

std::string as_bytes(double x) {
  return base::human(base::Bytes{x});
}
std::string as_dollars(double x) {
  return money_text(x);
}
std::string as_joules(double x) {
  return energy_text(x);
}
std::string as_rate(double x) {
  return base::human(base::FlopsPerSecond{x});
}
std::string as_probability(double x) {
  return fmt::format("{:.2f}", x);
}

const std::vector<Figure>& figures() {
  using C = const Compared&;
  using F = const PlanFigures&;
  static const std::vector<Figure> all = {
      {"step time, measured", [](C c, F) { return c.run ? c.run->step_time_s : 0; }, time_text},
      {"step time, predicted", [](C c, F) { return c.prediction.step_time_s; }, time_text},
      {"four of five runs", [](C, F f) { return f.step_time_s ? f.step_time_s->high : 0; }, time_text, false,
       [](F f) { return interval_text(*f.step_time_s); }},
      {"tokens/s, measured", [](C c, F) { return c.run ? c.run->tokens_per_s : 0; }, number},
      {"tokens/s, predicted", [](C c, F) { return c.prediction.tokens_per_s; }, number},
      {"tokens/s per device, predicted", [](C, F f) { return f.tokens_per_s_per_device; }, number},
      {"FLOP/s per device", [](C, F f) { return f.flops_per_s_per_device; }, as_rate},
      {"MFU", [](C c, F) { return c.prediction.mfu; }, percent},
      {"memory, measured", [](C c, F) { return c.run ? c.run->memory_peak_bytes : 0; }, as_bytes},
      {"memory, predicted", [](C c, F) { return c.prediction.memory_peak_bytes; }, as_bytes},
      {"memory per device", [](C c, F) { return c.prediction.memory_capacity_bytes; }, as_bytes, false},
      {"probability that it fits", [](C, F f) { return f.fits_probability.value_or(0); }, as_probability, false},
      {"bubble", [](C c, F) { return c.prediction.bubble_fraction; }, percent},
      {"exposed communication", [](C c, F) { return c.prediction.exposed_communication_s; }, time_text},
      {"cost per step", [](C c, F) { return c.prediction.cost_per_step_usd; }, as_dollars},
      {"cost per million tokens", [](C, F f) { return f.usd_per_million_tokens; }, as_dollars},
      {"energy per step", [](C c, F) { return c.prediction.energy_per_step_j; }, as_joules}};
  return all;
}

std::string days_text(double seconds) {
  return std::isfinite(seconds) ? estimate_text(seconds / 86400) : "for ever";
}

}  // namespace

json plan_page_json(const cost::Prediction& prediction, const PlanPage& page) {
  json out = simulate_json(prediction);
  const Binding binds = binding_of(prediction);
  out["binds"] = {{"part", binds.part}, {"seconds", binds.seconds}, {"share", binds.share}, {"text", binds.sentence}};
  out["figures"] = figures_json(figures_of(prediction, page.heading), page.heading.evidence_of(prediction.spec));
  out["heading"] = heading_json(page.heading);
  out["waterfall"] = waterfall_json(waterfall_of(prediction, page.operators));
  out["operators"] = operators_json(page.operators);
  out["neighbours"] = variations_json(page.neighbours, prediction, page.heading);
  out["sensitivities"] = sensitivities_json(page.sensitivities);
  return out;
}

std::vector<std::string> short_names(const std::vector<Compared>& all) {
  std::multiset<std::string> last;
  for (const Compared& one : all) last.insert(last_part(one.name));
  std::vector<std::string> out;
  for (const Compared& one : all) {
    const std::string part = last_part(one.name);
    const std::size_t i = out.size();
    const std::string mark = i < 26 ? std::string(1, static_cast<char>('A' + i)) : std::to_string(i + 1);
    out.push_back(mark + " · " + (last.count(part) > 1 ? one.name : part));
  }
  return out;
}

namespace {

/// "[1, 1, 1, 1, 2, 2, 2, 2, 2]" as "[1 × 4, 2 × 5]": in a long list, a repeated value is written once.
std::string with_runs_counted(const std::string& text) {
  constexpr std::size_t kLongList = 8;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return text;
  std::vector<std::pair<std::string, int>> runs;
  std::size_t items = 0;
  for (std::size_t begin = 1; begin < text.size(); ++items) {
    const std::size_t end = std::min(text.find(", ", begin), text.size() - 1);
    const std::string item = text.substr(begin, end - begin);
    if (!runs.empty() && runs.back().first == item)
      ++runs.back().second;
    else
      runs.emplace_back(item, 1);
    begin = end + 2;
  }
  if (items <= kLongList) return text;
  std::string out;
  for (const auto& [item, count] : runs)
    out += (out.empty() ? "" : ", ") + (count > 1 ? fmt::format("{} × {}", item, count) : item);
  return "[" + out + "]";
}

/// `to_be_read`: long lists are shortened.
Table differences_of(const std::vector<Compared>& all, bool to_be_read) {
  Table table = table_with_columns("", all);
  for (std::size_t i = 1; i < table.columns.size(); ++i) table.columns[i].align = Align::left;
  const auto row = [&](const std::string& what, const auto& text_of) {
    std::vector<std::string> texts;
    for (const Compared& one : all) texts.push_back(to_be_read ? with_runs_counted(text_of(one)) : text_of(one));
    add_if_different(table, what, std::move(texts));
  };
  row("model", [](const Compared& c) { return c.heading.model; });
  row("cluster", [](const Compared& c) { return c.heading.cluster; });
  row("device", [](const Compared& c) { return c.heading.device; });
  row("devices", [](const Compared& c) { return std::to_string(c.prediction.spec.mesh.ranks()); });
  row("software", [](const Compared& c) { return c.heading.evidence_of(c.prediction.spec).stack; });
  row("set up", [](const Compared& c) { return c.heading.software; });
  plan::for_each_field(plan::kFields, [&](const auto& field) {
    const std::string group = field.group;
    row((group.empty() ? "" : group + ".") + field.key, [&](const Compared& c) {
      const auto& value = field.of(c.prediction.spec);
      return plan::is_absent(value) ? kAbsent : plan::value_text(field, value);
    });
  });
  if (table.rows.empty()) table.notes.push_back("The plans are the same.");
  return table;
}

}  // namespace

Table differences_table(const std::vector<Compared>& all) {
  return differences_of(all, true);
}

namespace {

/// "samples/s, predicted" for "tokens/s, predicted".
std::string in_samples(std::string name) {
  constexpr std::string_view kTokens = "tokens";
  if (const std::size_t at = name.find(kTokens); at != name.npos) name.replace(at, kTokens.size(), "samples");
  return name;
}

}  // namespace

Table compared_table(const std::vector<Compared>& all) {
  Table table = table_with_columns("", all);
  std::vector<PlanFigures> of;
  for (const Compared& one : all) of.push_back(figures_of(one.prediction, one.heading));
  const bool samples = std::all_of(all.begin(), all.end(), [](const Compared& one) { return one.heading.samples; });
  for (const Figure& figure : figures()) {
    std::vector<double> values;
    for (std::size_t i = 0; i < all.size(); ++i) values.push_back(figure.of(all[i], of[i]));
    if (std::none_of(values.begin(), values.end(), [](double x) { return x > 0; })) continue;
    auto& row = table.rows.emplace_back();
    row.push_back(samples ? in_samples(figure.name) : figure.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(values[i] > 0))
        row.emplace_back(kAbsent);
      else if (figure.whole != nullptr)
        row.push_back(figure.whole(of[i]));
      else
        row.push_back(figure.text(values[i]) + (i > 0 && figure.ratio ? ratio_text(values[i], values[0]) : ""));
    }
  }
  const bool measured = std::any_of(all.begin(), all.end(), [](const Compared& one) { return one.run.has_value(); });
  table.notes.push_back(measured ? "× against the first. What is not called measured is predicted."
                                 : "× against the first.");
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].saved)
      table.notes.push_back(
          fmt::format("{}: as it was saved. A replay of its plan gives other figures today.", short_names(all)[i]));
  std::vector<std::pair<std::string, std::string>> said;  // evidence, and whose: once where several share it
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& text = all[i].heading.evidence_of(all[i].prediction.spec).text;
    if (text.empty()) continue;
    const std::string name = short_names(all)[i];
    const auto same = std::find_if(said.begin(), said.end(), [&](const auto& one) { return one.first == text; });
    if (same == said.end())
      said.emplace_back(text, name);
    else
      same->second += ", " + name;
  }
  for (const auto& [text, whose] : said) table.notes.push_back(fmt::format("Evidence for {}: {}.", whose, text));
  return table;
}

json compared_json(const std::vector<Compared>& all) {
  if (all.size() < 2) return nullptr;
  json items = json::array(), differences = json::array();
  const double first = all.front().prediction.step_time_s;
  for (const Compared& one : all) {
    json item = simulate_json(one.prediction);
    item["name"] = one.name;
    item["figures"] =
        figures_json(figures_of(one.prediction, one.heading), one.heading.evidence_of(one.prediction.spec));
    item["step_time_ratio"] = first > 0 ? json(one.prediction.step_time_s / first) : json(nullptr);
    item["measured_step_time_s"] = one.run ? json(one.run->step_time_s) : json(nullptr);
    items.push_back(std::move(item));
  }
  for (const auto& row : differences_of(all, false).rows)
    differences.push_back({{"what", row.front()}, {"values", std::vector<std::string>(row.begin() + 1, row.end())}});
  return {{"items", std::move(items)}, {"differences", std::move(differences)}};
}

Table lengths_table(const WholeRun& run) {
  Table table{"",
              {{"length", Align::left},
               {"parameters", Align::right, 0, 2},
               {"tokens"},
               {"a parameter", Align::right, 0, 3},
               {"FLOPs", Align::right, 0, 4},
               {"steps", Align::right, 0, 1},
               {"days"},
               {"$"},
               {"kWh"},
               {"loss"}},
              {},
              {}};
  for (const RunLength& one : run.lengths) {
    const auto own = [&](std::string text) { return one.this_model ? std::move(text) : kAbsent; };
    table.rows.push_back({one.what, base::human_count(one.parameters), base::human_count(one.tokens),
                          fmt::format("{:.3g}", one.tokens / one.parameters),
                          fmt::format("{:.3g}", 6 * one.parameters * one.tokens),
                          own(number(static_cast<double>(one.steps))), own(days_text(one.run_s)),
                          own(one.usd > 0 ? estimate_text(one.usd) : kAbsent),
                          own(one.energy_j > 0 ? estimate_text(one.energy_j / 3.6e6) : kAbsent),
                          one.loss > 0 ? fmt::format("{:.3f}", one.loss) : kAbsent});
  }
  std::set<std::string> said;
  for (const RunLength& one : run.lengths)
    if (!one.source.empty() && said.insert(one.source).second)
      table.notes.push_back(fmt::format("{}: {}.", one.what, one.source));
  table.notes.push_back(
      "FLOPs are 6 N D. Days include failures, restarts and checkpoints; money and energy are for all devices over "
      "that time, at their price and a step's mean power. Loss: what equation 10 of Hoffmann et al. expects on their "
      "data, to compare lengths of runs.");
  return table;
}

json whole_run_json(const WholeRun& run) {
  json lengths = json::array(), intervals = json::array();
  for (const RunLength& one : run.lengths) {
    json row = {{"what", one.what},
                {"source", one.source},
                {"parameters", one.parameters},
                {"tokens", one.tokens},
                {"flops", 6 * one.parameters * one.tokens},
                {"steps", nullptr},
                {"run_time_s", nullptr},
                {"cost_usd", nullptr},
                {"energy_j", nullptr},
                {"expected_loss", nullptr}};
    if (one.this_model) {
      row["steps"] = one.steps;
      row["run_time_s"] = one.run_s;
      row["cost_usd"] = one.usd;
      row["energy_j"] = one.energy_j;
    }
    if (one.loss > 0) row["expected_loss"] = one.loss;
    lengths.push_back(std::move(row));
  }
  for (const auto& [interval, goodput] : run.by_interval)
    intervals.push_back({{"checkpoint_every_s", interval}, {"goodput", goodput}});
  json out = {{"lengths", std::move(lengths)},
              {"goodput", goodput_json(run.forecast)},
              {"checkpoint", checkpoint_json(run.checkpoint)},
              {"goodput_by_interval", std::move(intervals)},
              {"measured", nullptr}};
  if (const auto& real = run.real)
    out["measured"] = {{"run", real->directory},
                       {"steps", real->steps},
                       {"resumed_from", real->resumed_from},
                       {"step_time_s", real->step_time_s},
                       {"restarts", real->restarts},
                       {"failures", real->failures},
                       {"lost_s", real->lost_s},
                       {"checkpoints", real->checkpoints},
                       {"checkpoint_pause_s", real->pause_s},
                       {"checkpoint_write_s", real->write_s},
                       {"goodput", real->goodput}};
  return out;
}

Table failures_table(const WholeRun& run) {
  constexpr double kYear = 365.25 * 86400;
  const cost::Forecast& f = run.forecast;
  const bool beside = run.real.has_value();
  Table table{"Failures and checkpoints", {{"", Align::left}, {"predicted"}}, {}, {}};
  if (beside) table.columns.push_back({"of the run"});
  const auto row = [&](const std::string& what, const std::string& predicted, const std::string& real = kAbsent) {
    table.rows.push_back({what, predicted});
    if (beside) table.rows.back().push_back(real);
  };
  const RealRun real = run.real.value_or(RealRun{});
  const double nodes = std::max(1.0, std::ceil(static_cast<double>(run.devices) / std::max(1, run.devices_per_node)));
  const double between = f.asked.failures.period.value_or(f.system.mtbf);
  const auto time = [](double s) { return std::isfinite(s) ? long_time(s) : std::string("none"); };
  row("failures per node and year",
      std::isfinite(between) && between > 0 ? estimate_text(kYear / between / nodes, kDigitsOfFailures) : "0");
  row("time between failures", time(between));
  row("failures of the run", estimate_text(f.failures, kDigitsOfFailures), std::to_string(real.restarts));
  row("from a failure until steps continue", time(f.system.restart),
      real.restarts > 0 ? time(real.lost_s / static_cast<double>(real.restarts)) : kAbsent);
  row("a checkpoint holds up steps for", time(f.system.pause), real.checkpoints > 0 ? time(real.pause_s) : kAbsent);
  row("and is written in the background in", time(run.checkpoint.price.write),
      real.checkpoints > 0 ? time(real.write_s) : kAbsent);
  row("best interval between checkpoints", f.periodic ? kAbsent : time(f.best.interval));
  row("interval taken", time(f.now.interval));
  row("goodput", percent(f.now.useful), real.steps > 0 ? percent(real.goodput) : kAbsent);
  row("of the rest: checkpoints", percent(f.now.checkpoint));
  row("repeated work", percent(f.now.lost));
  row("restarts", percent(f.now.restart));
  if (!f.asked.failures.mtbf.source.empty() && !f.periodic)
    table.notes.push_back(fmt::format("Failures: {}.", f.asked.failures.mtbf.source));
  table.notes.push_back(fmt::format("Restarts: {}.", f.asked.restart.source));
  for (const std::string& why : real.failures) table.notes.push_back("Failed: " + why);
  return table;
}

}  // namespace orrery::reports
