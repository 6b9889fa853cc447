// Markdown and CSV of what the page shows.
#include "reports/report_files.h"

#include <fmt/format.h>

#include "reports/explanation.h"
#include "reports/tables/csv_line.h"
#include "reports/tables/markdown.h"
#include "reports/tables/tables.h"

namespace orrery::reports {
namespace {

Table titled(Table table, const char* title) {
  if (table.title.empty()) table.title = title;
  return table;
}

Table provenance_table(const std::vector<Provenance>& all) {
  Table table{
      "Where the numbers are from", {{"what", Align::left}, {"value", Align::left}, {"source", Align::left}}, {}, {}};
  for (const Provenance& one : all) table.rows.push_back({one.what, one.value, one.source});
  return table;
}

void add_prediction(std::vector<Table>& out, const ReportData& data) {
  const cost::Prediction& p = *data.prediction;
  Table summary = titled(summary_table(p), "The plan, as predicted");
  if (summary.columns.empty()) summary.columns = {{"", Align::left}, {""}};
  out.push_back(std::move(summary));
  const cost::Breakdown* measured = data.measured_breakdown ? &*data.measured_breakdown : nullptr;
  out.push_back(breakdown_table(p.breakdown, measured));
  if (!p.memory.empty()) out.push_back(memory_table(p.memory, p.memory_capacity_bytes));
  if (!p.communication.empty()) out.push_back(communication_table(p.communication));
  if (!p.tables.empty()) out.push_back(tables_table(p));
  if (!p.links.empty()) out.push_back(links_table(p.links));
  if (!data.page) return;
  const PlanPage& page = *data.page;
  if (const auto parts = waterfall_of(p, page.operators); !parts.empty())
    out.push_back(titled(waterfall_table(parts), "From peak FLOPs to what is reached"));
  if (!page.operators.rows.empty()) out.push_back(operators_table(page.operators));
  if (!page.neighbours.empty())
    out.push_back(variations_table("Neighbours of this plan", page.neighbours, p, page.heading, 0));
  if (!page.sensitivities.empty()) out.push_back(sensitivities_table(page.sensitivities, p));
}

std::vector<Table> shown_tables(const ReportData& data) {
  std::vector<Table> out;
  if (data.compared.size() > 1) {
    out.push_back(titled(differences_table(data.compared), "What differs"));
    out.push_back(titled(compared_table(data.compared), "Side by side"));
  }
  if (!data.runs.empty()) out.push_back(titled(runs_table(data.runs), "Predicted against measured"));
  if (data.prediction) add_prediction(out, data);
  if (data.whole_run) {
    out.push_back(titled(lengths_table(*data.whole_run), "The whole run"));
    out.push_back(titled(failures_table(*data.whole_run), "Failures, checkpoints and restarts"));
  }
  if (data.fit) out.push_back(titled(parameters_table(data.fit->parameters), "Fitted coefficients"));
  if (data.search) {
    if (!data.search->plans.empty()) out.push_back(titled(plans_table(*data.search), "Plans, best first"));
    if (!data.search->rejected.empty()) out.push_back(titled(rejections_table(*data.search), "Rejected"));
  }
  if (!data.provenance.empty()) out.push_back(provenance_table(data.provenance));
  return out;
}

/// `p` or `run` may be absent.
CsvLine line_of(const std::string& name, const cost::Prediction* p, const cost::MeasuredRun* run) {
  const plan::PlanSpec& spec = p != nullptr ? p->spec : run->spec;
  const cost::Prediction of = p != nullptr ? *p : cost::Prediction{};
  const cost::MeasuredRun measured = run != nullptr ? *run : cost::MeasuredRun{};
  const bool foretold = p != nullptr;
  CsvLine line;
  line.text("input", name);
  line.text("plan", plan::describe(spec));
  line.count("devices", spec.mesh.ranks());
  line.value("step_time_s", foretold ? of.step_time_s : measured.predicted_after_s);
  line.value("measured_step_time_s", measured.step_time_s, run != nullptr);
  line.value("tokens_per_s", of.tokens_per_s, foretold);
  line.value("measured_tokens_per_s", measured.tokens_per_s, run != nullptr);
  line.value("mfu", of.mfu, foretold);
  line.value("bubble_fraction", of.bubble_fraction, foretold);
  line.value("exposed_communication_s", of.exposed_communication_s, foretold);
  line.value("memory_peak_bytes", foretold ? of.memory_peak_bytes : measured.predicted_memory_bytes);
  line.value("measured_memory_peak_bytes", measured.memory_peak_bytes, run != nullptr);
  line.value("memory_capacity_bytes", of.memory_capacity_bytes, foretold);
  line.value("cost_per_step_usd", of.cost_per_step_usd, foretold && of.cost_per_step_usd > 0);
  line.value("energy_per_step_j", of.energy_per_step_j, foretold && of.energy_per_step_j > 0);
  return line;
}

}  // namespace

std::string report_markdown(const ReportData& data) {
  std::string out = "# " + markdown_text(data.title) + "\n\nA report by `orrery report`.\n";
  if (!data.subtitle.empty()) out += "\n" + markdown_text(data.subtitle) + "\n";
  for (const Table& table : shown_tables(data)) out += "\n" + markdown_of(table);
  return out;
}

std::string report_csv(const ReportData& data) {
  std::string out;
  const auto add = [&](const CsvLine& line) {
    if (out.empty()) out = line.head + "\n";
    out += line.cells + "\n";
  };
  if (!data.compared.empty()) {
    for (const Compared& one : data.compared) add(line_of(one.name, &one.prediction, one.run ? &*one.run : nullptr));
  } else if (!data.runs.empty()) {
    for (const cost::MeasuredRun& run : data.runs) add(line_of(run.directory, nullptr, &run));
  } else if (data.prediction) {
    add(line_of(data.title, &*data.prediction, nullptr));
  }
  if (data.search)
    for (std::size_t i = 0; i < data.search->plans.size(); ++i)
      add(line_of(fmt::format("search {}", i + 1), &data.search->plans[i], nullptr));
  return out;
}

}  // namespace orrery::reports
