/// Puts the report together.
#include "reports/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "reports/html/page.h"
#include "reports/html/scaling_charts.h"
#include "reports/tables.h"
#include "reports/text.h"

namespace orrery::reports {
namespace {

using html::escaped;
using html::tile;

/// "predicted 114 ms (−3.4 %)"
std::string beside(const std::string& predicted, double prediction, double measured) {
  const double d = prediction / measured - 1;
  return fmt::format("predicted {} ({}{})", predicted, d < 0 ? "−" : "+", percent(std::abs(d)));
}

/// The figures that a reader wants first: measured where there was a run, with the prediction beside it.
std::string tiles(const ReportData& data) {
  const cost::Prediction p = data.prediction.value_or(cost::Prediction{});
  const cost::MeasuredRun run = data.run.value_or(cost::MeasuredRun{});
  const std::string predicted_time = time_text(p.step_time_s);
  std::string out;
  if (run.step_time_s > 0) {
    out += tile("Step time", time_text(run.step_time_s),
                p.step_time_s > 0 ? beside(predicted_time, p.step_time_s, run.step_time_s) : "measured");
  } else if (p.step_time_s > 0) {
    out += tile("Step time", predicted_time, "predicted");
  }
  const double rate = run.tokens_per_s > 0 ? run.tokens_per_s : p.tokens_per_s;
  if (rate > 0)
    out += tile("Throughput", number(rate), run.tokens_per_s > 0 ? "tokens/s, measured" : "tokens/s, predicted");
  if (run.memory_peak_bytes > 0) {
    // The run's own prediction counts what the run counts; the device's total holds the software as well.
    const double bytes = run.predicted_memory_bytes > 0 ? run.predicted_memory_bytes : p.memory_peak_bytes;
    out += tile("Memory peak", base::human(base::Bytes{run.memory_peak_bytes}),
                bytes > 0 ? beside(base::human(base::Bytes{bytes}), bytes, run.memory_peak_bytes) : "measured");
  } else if (p.memory_peak_bytes > 0) {
    out += tile("Memory peak", base::human(base::Bytes{p.memory_peak_bytes}),
                p.memory_capacity_bytes > 0 ? percent(p.memory_peak_bytes / p.memory_capacity_bytes) + " of the device"
                                            : "predicted");
  }
  if (data.prediction) out += tile("Bubble", percent(p.bubble_fraction), "of the step, predicted");
  if (p.mfu > 0) out += tile("MFU", percent(p.mfu), "model FLOPs of peak, predicted");
  const double held_out = held_out_error(data.runs);
  if (std::isfinite(held_out)) out += tile("Error of step time", percent(held_out), "median over runs held out");
  return out.empty() ? out : "<ul class=\"tiles\">\n" + out + "</ul>\n";
}

std::string section(const std::string& title, const std::string& text, const std::vector<Table>& tables) {
  std::string out = "<section>\n<h2>" + escaped(title) + "</h2>\n";
  if (!text.empty()) out += "<p>" + escaped(text) + "</p>\n";
  for (const Table& table : tables) out += html::table_html(table);
  return out + "</section>\n";
}

Table untitled(Table table) {
  table.title.clear();
  return table;
}

std::vector<html::Chart> charts_of(const ReportData& data) {
  std::vector<html::Chart> charts;
  if (data.schedule && (data.predicted || data.measured)) charts.push_back(html::timeline_chart(data));
  if (data.prediction) {
    charts.push_back(html::breakdown_chart(data.prediction->breakdown, data.measured_breakdown));
    if (!data.prediction->memory.empty()) charts.push_back(html::memory_chart(*data.prediction, data.measured_memory));
  }
  const bool any_run = std::any_of(data.runs.begin(), data.runs.end(), [](const auto& r) { return r.step_time_s > 0; });
  if (any_run) charts.push_back(html::runs_chart(data.runs));
  const auto judged = [](const cost::Residual& r) {
    return r.measured_s > 0 && r.predicted_before_s > 0 && r.predicted_after_s > 0;
  };
  if (data.fit && std::any_of(data.fit->residuals.begin(), data.fit->residuals.end(), judged))
    charts.push_back(html::residuals_chart(*data.fit));
  if (data.scaling)
    for (html::Chart& chart : html::scaling_charts(*data.scaling)) charts.push_back(std::move(chart));
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

std::string tables_of(const ReportData& data) {
  std::string out;
  if (!data.expert_loads.empty())
    out += section("Load of experts, measured",
                   "Tokens that chose each expert in the last step, over all ranks: of an even router all would be 1.",
                   {loads_table(data.expert_loads)});
  if (data.fit && !data.fit->parameters.empty()) {
    Table table = untitled(parameters_table(data.fit->parameters));
    for (const std::string& note : data.fit->notes) table.notes.push_back(note);
    out += section("Calibrated parameters",
                   "What predictions rest on, before and after the fit, and where each comes from.", {table});
  }
  if (data.search) {
    const cost::SearchResult& s = *data.search;
    std::vector<Table> tables{untitled(plans_table(s))};
    if (!s.rejected.empty()) tables.push_back(rejections_table(s));
    out += section(
        "Plans considered",
        fmt::format("{} candidates, {} feasible, {} evaluated. Best first.", number(static_cast<double>(s.candidates)),
                    number(static_cast<double>(s.feasible)), number(static_cast<double>(s.evaluated))),
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
  std::string out = section("Provenance", "Inputs, versions and sources of what this report shows.", {table});
  return out.replace(0, std::string("<section>").size(), "<section class=\"prov\">");
}

}  // namespace

std::string report_html(const ReportData& data, const ChartLibrary& library) {
  std::string lead = data.subtitle;
  const std::string split = data.prediction ? plan::describe(data.prediction->spec) : "";
  if (lead.find(split) == std::string::npos) lead += (lead.empty() ? "" : " ") + ("Plan: " + split + ".");
  std::string body = tiles(data);
  if (data.scaling) body += html::scaling_lead(*data.scaling);
  int number_of_figure = 0;
  for (const html::Chart& chart : charts_of(data))
    body += html::figure_html(chart, ++number_of_figure, !library.parts.empty());
  if (data.scaling) body += html::scaling_sections(*data.scaling);
  body += tables_of(data);
  body += provenance_of(data, library);
  return html::page_html(data.title, lead, body, library);
}

}  // namespace orrery::reports
