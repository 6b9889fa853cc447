/// Puts the report together.
#include "reports/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "reports/html/page.h"
#include "reports/html/plan_charts.h"
#include "reports/html/scaling_charts.h"
#include "reports/scaling.h"
#include "reports/tables/binding.h"
#include "reports/tables/tables.h"
#include "reports/tables/text.h"

namespace orrery::reports {
namespace {

using html::escaped;
using html::tile;

/// "predicted 114 ms (−3.4 %)"
std::string beside(const std::string& predicted, double prediction, double measured) {
  const double d = prediction / measured - 1;
  return fmt::format("predicted {} ({}{})", predicted, d < 0 ? "−" : "+", percent(std::abs(d)));
}

const char* rate_unit(const ReportData& data) {
  return data.prediction && !data.prediction->tables.empty() ? "samples/s" : "tokens/s";
}

/// Rates, money and energy of a plan's page, and the totals of its run.
std::string more_tiles(const cost::Prediction& p, const PlanFigures& figures, const ReportData& data) {
  std::string out;
  const char* unit = rate_unit(data);
  if (figures.tokens_per_s_per_device > 0)
    out += tile("Per device", number(figures.tokens_per_s_per_device),
                figures.flops_per_s_per_device > 0
                    ? fmt::format("{}, {}", unit, base::human(base::FlopsPerSecond{figures.flops_per_s_per_device}))
                    : unit);
  if (data.page && p.cost_per_step_usd > 0)
    out += tile("Cost per step", money_text(p.cost_per_step_usd),
                fmt::format("{} per million {}", money_text(figures.usd_per_million_tokens),
                            data.page->heading.samples ? "samples" : "tokens"));
  if (data.page && p.energy_per_step_j > 0)
    out += tile("Energy per step", energy_text(p.energy_per_step_j),
                p.energy.total() > p.energy.devices
                    ? "devices " + percent(p.energy.devices / p.energy.total()) + ", the rest hosts, network, cooling"
                    : "of the devices alone");
  if (const auto& run = data.whole_run; run && !run->lengths.empty()) {
    const RunLength& length = run->lengths.front();
    out += tile("The run", long_time(length.run_s),
                fmt::format("{} {}, {} {}", base::human_count(length.tokens),
                            data.page && data.page->heading.samples ? "samples" : "tokens",
                            number(static_cast<double>(length.steps)), base::plural(length.steps, "step")));
    if (length.usd > 0)
      out += tile("Cost of the run", estimate_text(length.usd) + " $",
                  fmt::format("{} kWh", estimate_text(length.energy_j / 3.6e6)));
    out += tile("Goodput", percent(run->forecast.now.useful), "time in steps that count");
  }
  return out;
}

/// The most wanted figures: measured if there was a run, with the prediction beside it.
std::string tiles(const ReportData& data) {
  const cost::Prediction p = data.prediction.value_or(cost::Prediction{});
  const cost::MeasuredRun run = data.run.value_or(cost::MeasuredRun{});
  const PlanFigures figures = data.page ? figures_of(p, data.page->heading) : PlanFigures{};
  const std::string predicted_time = time_text(p.step_time_s);
  std::string out;
  if (run.step_time_s > 0) {
    out += tile("Step time", time_text(run.step_time_s),
                p.step_time_s > 0 ? beside(predicted_time, p.step_time_s, run.step_time_s) : "measured");
  } else if (p.step_time_s > 0) {
    out += tile("Step time", predicted_time,
                figures.step_time_s ? "four of five runs: " + interval_text(*figures.step_time_s) : "predicted");
  }
  const double rate = run.tokens_per_s > 0 ? run.tokens_per_s : p.tokens_per_s;
  if (rate > 0)
    out += tile("Throughput", number(rate),
                fmt::format("{}, {}", rate_unit(data), run.tokens_per_s > 0 ? "measured" : "predicted"));
  if (run.memory_peak_bytes > 0) {
    // The run's own prediction counts what the run measures; the device's total includes the software.
    const double bytes = run.predicted_memory_bytes > 0 ? run.predicted_memory_bytes : p.memory_peak_bytes;
    out += tile("Memory peak", base::human(base::Bytes{run.memory_peak_bytes}),
                bytes > 0 ? beside(base::human(base::Bytes{bytes}), bytes, run.memory_peak_bytes) : "measured");
  } else if (p.memory_peak_bytes > 0) {
    std::string note = p.memory_capacity_bytes > 0
                           ? percent(p.memory_peak_bytes / p.memory_capacity_bytes) + " of the device"
                           : "predicted";
    if (figures.fits_probability) note += fmt::format(", fits with probability {:.2f}", *figures.fits_probability);
    out += tile("Memory peak", base::human(base::Bytes{p.memory_peak_bytes}), note);
  }
  if (data.prediction) out += tile("Bubble", percent(p.bubble_fraction), "of the step, predicted");
  if (p.mfu > 0) out += tile("MFU", percent(p.mfu), "model FLOPs over peak, predicted");
  out += more_tiles(p, figures, data);
  const double held_out = held_out_error(data.runs);
  if (std::isfinite(held_out)) out += tile("Error of step time", percent(held_out), "median over held-out runs");
  return out.empty() ? out : "<ul class=\"tiles\">\n" + out + "</ul>\n";
}

std::string section(const std::string& title, const std::string& text, const std::vector<Table>& tables) {
  std::string out = "<section>\n<h2>" + escaped(title) + "</h2>\n";
  if (!text.empty()) out += "<p>" + html::prose(text) + "</p>\n";
  for (const Table& table : tables) out += html::table_html(table);
  return out + "</section>\n";
}

Table untitled(Table table) {
  table.title.clear();
  return table;
}

/// What the figures at the top rest on.
std::string words_of(const ReportData& data) {
  if (!data.page || !data.prediction) return "";
  const Evidence& evidence = data.page->heading.evidence_of(data.prediction->spec);
  std::string out = "<p class=\"words\">" + html::prose(binding_of(*data.prediction).sentence) + "</p>\n";
  if (data.page->saved)
    out +=
        "<p class=\"words\">These figures are as they were saved: a replay of the plan gives others today. What a "
        "replay shows (timeline, operators, what other numbers would change) is left out.</p>\n";
  const std::string& set_up = data.page->heading.software;
  const std::string software = evidence.stack.empty() ? ""
                                                      : fmt::format("Software: {}{}. ", evidence.stack,
                                                                    set_up.empty() ? "" : fmt::format(" ({})", set_up));
  // Some sentences begin with the word.
  const std::string word = evidence.text.starts_with(evidence.word) ? "" : fmt::format(" ({})", evidence.word);
  if (!evidence.text.empty())
    out +=
        "<p class=\"words\">" + html::prose(fmt::format("{}Evidence{}: {}.", software, word, evidence.text)) + "</p>\n";
  return out;
}

/// How the compared things differ; comes before everything else.
std::string comparison_of(const ReportData& data, int& figure, bool drawn) {
  if (data.compared.size() < 2) return "";
  std::string out = section("What differs", "Fields in which the plans differ.", {differences_table(data.compared)});
  out += section("Side by side", "", {compared_table(data.compared)});
  out += html::figure_html(html::compared_breakdown_chart(data.compared), ++figure, drawn);
  const auto known = [](const Compared& one) { return !one.prediction.memory.empty(); };
  if (std::any_of(data.compared.begin(), data.compared.end(), known))
    out += html::figure_html(html::compared_memory_chart(data.compared), ++figure, drawn);
  if (const auto timelines = html::compared_timelines_chart(data.compared))
    out += html::figure_html(*timelines, ++figure, drawn);
  if (!data.prediction) return out;
  const std::string run = data.run ? fmt::format(" ({})", data.run->directory) : "";
  return out + fmt::format("<h2 class=\"full\">In full: {}{}</h2>\n", escaped(plan::describe(data.prediction->spec)),
                           escaped(run));
}

std::string whole_run_of(const ReportData& data, int& figure, bool drawn) {
  if (!data.whole_run) return "";
  std::string out =
      section("The whole run", "Tokens to train on, and what that takes.", {lengths_table(*data.whole_run)});
  out += section("Failures, checkpoints and restarts", "", {untitled(failures_table(*data.whole_run))});
  if (data.whole_run->by_interval.size() > 1)
    out += html::figure_html(html::goodput_chart(*data.whole_run), ++figure, drawn);
  return out;
}

/// Charts of a plan, below its timeline.
void add_plan_charts(std::vector<html::Chart>& charts, const ReportData& data) {
  const PlanPage& page = *data.page;
  const auto parts = waterfall_of(*data.prediction, page.operators);
  if (!parts.empty()) charts.push_back(html::waterfall_chart(parts));
}

void add_explaining_charts(std::vector<html::Chart>& charts, const ReportData& data) {
  const PlanPage& page = *data.page;
  if (!page.sensitivities.empty() || !page.neighbours.empty())
    charts.push_back(html::tornado_chart(page, *data.prediction));
  const auto plotted = [](const cost::OperatorRow& row) { return row.flops > 0 && row.bytes > 0 && row.seconds > 0; };
  if (page.operators.peak_flops > 0 && page.operators.bandwidth > 0 &&
      std::any_of(page.operators.rows.begin(), page.operators.rows.end(), plotted))
    charts.push_back(html::roofline_chart(page.operators));
  if (!page.topology.links.empty()) charts.push_back(html::topology_chart(page.topology, page.heading.cluster));
  if (!data.prediction->links.empty()) charts.push_back(html::links_chart(data.prediction->links));
}

/// How predictions meet the runs: first, where there are several.
void add_runs_charts(std::vector<html::Chart>& charts, const ReportData& data) {
  const bool any_run = std::any_of(data.runs.begin(), data.runs.end(), [](const auto& r) { return r.step_time_s > 0; });
  if (any_run) charts.push_back(html::runs_chart(data.runs));
  const auto judged = [](const cost::Residual& r) {
    return r.measured_s > 0 && r.predicted_before_s > 0 && r.predicted_after_s > 0;
  };
  if (data.fit && std::any_of(data.fit->residuals.begin(), data.fit->residuals.end(), judged))
    charts.push_back(html::residuals_chart(*data.fit));
}

std::vector<html::Chart> charts_of(const ReportData& data) {
  std::vector<html::Chart> charts;
  const bool whole = data.page && data.prediction;
  if (data.schedule && (data.predicted || data.measured)) charts.push_back(html::timeline_chart(data));
  if (whole && !charts.empty()) {
    if (!data.page->trace.empty())
      charts.back().save = {"trace.json", data.page->trace};
    else
      charts.back().text += " `orrery simulate PLAN --trace FILE` writes it for Perfetto.";
  }
  if (whole) add_plan_charts(charts, data);
  if (data.prediction) {
    charts.push_back(html::breakdown_chart(data.prediction->breakdown, data.measured_breakdown));
    if (!data.prediction->memory.empty()) charts.push_back(html::memory_chart(*data.prediction, data.measured_memory));
    if (whole && !data.prediction->memory.empty()) {
      const auto fits = figures_of(*data.prediction, data.page->heading).fits_probability;
      if (fits) charts.back().text += fmt::format(" It fits the device with a probability of {:.2f}.", *fits);
    }
  }
  if (whole) add_explaining_charts(charts, data);
  if (data.search && !data.search->plans.empty() && data.search_heading)
    charts.push_back(html::pareto_chart(*data.search, *data.search_heading));
  if (data.runs.size() == 1) add_runs_charts(charts, data);
  if (data.losses.size() > 1) charts.push_back(html::loss_chart(data.losses));
  return charts;
}

Table loads_table(const std::vector<ExpertLoad>& loads) {
  Table table{"",
              {{"layer", Align::right},
               {"fullest / mean", Align::right},
               {"fewest / mean", Align::right},
               {"without tokens", Align::right}},
              {},
              {}};
  for (const ExpertLoad& load : loads) {
    const double sum = std::accumulate(load.tokens.begin(), load.tokens.end(), 0.0);
    const auto idle = std::count(load.tokens.begin(), load.tokens.end(), 0.0);
    const bool known = sum > 0;
    const double fewest = known ? *std::min_element(load.tokens.begin(), load.tokens.end()) : 0;
    table.rows.push_back(
        {load.layer, fmt::format("{:.2f}", load.fullest),
         known ? fmt::format("{:.2f}", fewest * static_cast<double>(load.tokens.size()) / sum) : "not kept",
         known ? fmt::format("{} of {}", idle, load.tokens.size()) : "not kept"});
  }
  return table;
}

Table caches_table(const std::vector<TableCache>& caches) {
  Table table{"",
              {{"table", Align::left},
               {"lookups", Align::right},
               {"hit rate", Align::right},
               {"fetched", Align::right},
               {"written back", Align::right}},
              {},
              {}};
  for (const TableCache& one : caches)
    table.rows.push_back({one.table, base::human_count(one.lookups),
                          one.lookups > 0 ? percent(one.hits / one.lookups) : "none looked up",
                          base::human(base::Bytes{one.fetched_bytes}), base::human(base::Bytes{one.written_bytes})});
  return table;
}

std::string tables_of(const ReportData& data) {
  std::string out;
  if (!data.table_caches.empty())
    out += section("Caches of tables, measured",
                   "Tables outside the device's memory, over all steps and ranks: lookups whose row was in the "
                   "device's cache before their step, and bytes moved.",
                   {caches_table(data.table_caches)});
  if (!data.expert_loads.empty())
    out += section(
        "Load of experts, measured",
        "Tokens that chose each expert in the last step, over all ranks; with an even router every ratio would be 1.",
        {loads_table(data.expert_loads)});
  if (data.fit && !data.fit->parameters.empty()) {
    Table table = untitled(parameters_table(data.fit->parameters));
    for (const std::string& note : data.fit->notes) table.notes.push_back(note);
    out += section("Calibrated parameters",
                   "What predictions rest on, before and after the fit, and where each comes from.", {table});
  }
  if (data.search) {
    const cost::SearchResult& s = *data.search;
    std::vector<Table> tables;
    if (!data.search_heading || s.plans.empty()) tables.push_back(untitled(plans_table(s)));
    if (!s.rejected.empty()) tables.push_back(rejections_table(s));
    if (!tables.empty())
      out += section("Plans considered",
                     fmt::format("{}, {} feasible, {} evaluated. Best first.", count_text(s.candidates, "candidate"),
                                 count_text(s.feasible), count_text(s.evaluated)),
                     tables);
  }
  if (data.prediction && !(data.prediction->communication.empty() && data.prediction->links.empty())) {
    std::vector<Table> tables;
    if (!data.prediction->communication.empty()) tables.push_back(communication_table(data.prediction->communication));
    if (!data.prediction->links.empty()) tables.push_back(links_table(data.prediction->links));
    out += section("Communication, predicted", "", tables);
  }
  return out;
}

std::string provenance_of(const ReportData& data, const ChartLibrary& library) {
  Table table{"", {{"what", Align::left}, {"value", Align::left}, {"source", Align::left}}, {}, {}};
  for (const Provenance& p : data.provenance) table.rows.push_back({p.what, p.value, p.source});
  if (!library.parts.empty())
    table.rows.push_back({"charts", library.version, "drawn in this page; nothing is fetched"});
  if (table.rows.empty()) return "";
  std::vector<Table> tables{std::move(table)};
  if (data.page && !data.page->coefficients.rows.empty()) tables.push_back(data.page->coefficients);
  std::string out = section("Provenance", "Inputs, versions and sources of what this report shows.", tables);
  return out.replace(0, std::string("<section>").size(), "<section class=\"prov\">");
}

/// The study, which the page is named after; what else was given comes after it.
std::string study_of(const ReportData& data, int& figure, bool drawn) {
  if (!data.scaling) return "";
  std::string out = html::scaling_lead(*data.scaling);
  for (const html::Chart& chart : html::scaling_charts(*data.scaling)) out += html::figure_html(chart, ++figure, drawn);
  return out + html::scaling_sections(*data.scaling);
}

/// Runs, plans and searches, with how they differ first.
std::string plans_of(const ReportData& data, int& figure, bool drawn) {
  std::string out;
  if (data.runs.size() > 1) {
    std::vector<html::Chart> first;
    add_runs_charts(first, data);
    for (const html::Chart& chart : first) out += html::figure_html(chart, ++figure, drawn);
  }
  out += comparison_of(data, figure, drawn);
  out += tiles(data) + words_of(data);
  out += whole_run_of(data, figure, drawn);
  for (const html::Chart& chart : charts_of(data)) out += html::figure_html(chart, ++figure, drawn);
  return out + tables_of(data);
}

/// What separates the study from what is beside it.
std::string beside_heading(const ReportData& data, const std::string& lead) {
  const std::string of =
      data.page ? fmt::format(": {} on {}", data.page->heading.model, data.page->heading.cluster) : "";
  return fmt::format("<h2 class=\"full\">Beside the study{}</h2>\n{}", escaped(of),
                     lead.empty() ? "" : "<p>" + html::prose(lead) + "</p>\n");
}

}  // namespace

std::string report_html(const ReportData& data, const ChartLibrary& library) {
  std::string lead = data.subtitle;
  const std::string split = data.prediction ? plan::describe(data.prediction->spec) : "";
  if (lead.find(split) == std::string::npos) lead += (lead.empty() ? "" : " ") + ("Plan: " + split + ".");
  if (data.compared.size() > 1) lead = fmt::format("{} plans side by side, then one in full.", data.compared.size());
  int number_of_figure = 0;
  const bool drawn = !library.parts.empty();
  std::string body = study_of(data, number_of_figure, drawn);
  const std::string plans = plans_of(data, number_of_figure, drawn);
  if (data.scaling && !plans.empty()) body += beside_heading(data, lead);
  body += plans + provenance_of(data, library);
  return html::page_html(data.title, data.scaling ? scaling_subtitle(*data.scaling) : lead, body, library);
}

}  // namespace orrery::reports
