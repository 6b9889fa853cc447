/// Pages of a plan alone, of several things beside each other, and of whole runs, without a browser.
#include "reports/plan_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "reports/explanation.h"
#include "reports/html/plan_charts.h"
#include "reports/report.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

ChartLibrary some_library() {
  ChartLibrary out;
  out.version = "test";
  out.parts.assign(chart_library_files().size(), "exports.x = 1;");
  return out;
}

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

cost::Operators operators() {
  cost::Operators out;
  out.peak_flops = 312e12;
  out.bandwidth = 2e12;
  out.rows = {{"matmul", "backward", 400, 0.5, 0.36 * 312e12, 1e12},
              {"matmul", "forward", 200, 0.25, 0.18 * 312e12, 5e11},
              {"attention_grad", "backward", 20, 0.1, 0.04 * 312e12, 2e11},
              {"layer_norm", "forward", 80, 0.05, 1e9, 1e11},
              {"adamw", "optimizer", 1, 0.015, 2e9, 3e10}};
  out.masked_flops = 0.02 * 312e12;
  return out;
}

PlanPage page() {
  PlanPage out;
  out.heading.model = "gpt3-22b";
  out.heading.cluster = "selene-128";
  out.heading.device = "A100";
  out.heading.devices = 128;
  out.heading.devices_per_node = 8;
  out.heading.peak_flops = 312e12;
  Evidence& evidence = out.heading.evidence.front();
  evidence.stack = "megatron-core";
  evidence.word = "published";
  evidence.text = "from 38 published runs <of it>";
  evidence.several_nodes = cost::Spread{"megatron-core", true, {0.9, 1.11}, {0.95, 1.08}, 38};
  out.operators = operators();
  cost::Prediction other = sample::prediction();
  other.step_time_s *= 1.1;
  other.memory_peak_bytes *= 2;
  out.neighbours = {{"micro-batch 2", other, "", ""}, {"VP 3", std::nullopt, "chunks are not whole", "P18"}};
  out.sensitivities = {{"bandwidth of NICs", "25 GB/s", "selene", "", 1.9, 1.6},
                       {"device.gemm.efficiency", "0.8", "datasheet", "share of the peak", 2.1, 1.5}};
  out.coefficients = {"Coefficients", {{"name", Align::left}, {"value"}, {"source", Align::left}}, {}, {}};
  out.coefficients.rows = {{"device.gemm.efficiency", "0.8", "a <source>"}};
  return out;
}

ReportData plan_report() {
  ReportData data = sample::report();
  data.measured.reset();
  data.measured_breakdown.reset();
  data.measured_memory.clear();
  data.run.reset();
  data.runs.clear();
  data.fit.reset();
  data.scaling.clear();
  data.losses.clear();
  data.search.reset();
  data.page = page();
  return data;
}

TEST(Waterfall, PartsAddUpToTheStep) {
  const cost::Prediction p = sample::prediction();
  const auto parts = waterfall_of(p, operators());
  ASSERT_GT(parts.size(), 8U);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0,
                                     [](double s, const WaterfallPart& part) { return s + part.seconds; });
  EXPECT_NEAR(sum, p.step_time_s, 1e-12);
  EXPECT_EQ(parts.front().name, "model FLOPs at peak");
  EXPECT_NEAR(parts.front().seconds, p.mfu * p.step_time_s, 1e-12);
  const auto seconds = [&](const std::string& name) {
    for (const WaterfallPart& part : parts)
      if (part.name == name) return part.seconds;
    return 0.0;
  };
  EXPECT_NEAR(seconds("attention that masks leave out"), -0.02, 1e-12);
  EXPECT_NEAR(seconds("matrix products below peak"), 0.75 - 0.54, 1e-12);
  EXPECT_NEAR(seconds("attention below peak"), 0.06, 1e-12);
  EXPECT_DOUBLE_EQ(seconds("bubble"), p.breakdown.bubble);
  EXPECT_DOUBLE_EQ(seconds("tensor communication"), p.breakdown.tensor_communication);
}

TEST(Waterfall, OfAMachineWithoutAPeakIsNone) {
  cost::Operators unknown = operators();
  unknown.peak_flops = 0;
  EXPECT_TRUE(waterfall_of(sample::prediction(), unknown).empty());
  cost::Prediction p = sample::prediction();
  p.mfu = 0;
  EXPECT_TRUE(waterfall_of(p, operators()).empty());
}

TEST(PlanPage, HasEveryPartOfAPlan) {
  const std::string html = report_html(plan_report(), some_library());
  for (const char* heading : {"From the peak to the step", "Timeline", "Where the step goes", "Memory by stage",
                              "What the step hangs on", "Roofline by operator", "Load of the network", "Provenance"})
    EXPECT_THAT(html, HasSubstr(std::string(">") + heading + "</h2>"));
  EXPECT_THAT(html, HasSubstr("four of five runs: 1.56–1.92 s"));
  EXPECT_THAT(html, HasSubstr("fits with probability 1.00"));
  EXPECT_THAT(html, HasSubstr("Evidence (published): from 38 published runs &lt;of it&gt;."));
  EXPECT_THAT(html, HasSubstr("Software: megatron-core."));
  EXPECT_THAT(html, HasSubstr("a &lt;source&gt;")) << "each coefficient says where it comes from";
  EXPECT_THAT(html, HasSubstr("breaks P18: chunks are not whole"));
  EXPECT_EQ(html, report_html(plan_report(), some_library()));
}

TEST(PlanPage, WithoutItsPartsLeavesThemOut) {
  ReportData data = plan_report();
  data.page->sensitivities.clear();
  data.page->neighbours.clear();
  data.page->operators = {};
  data.prediction->links.clear();
  const std::string html = report_html(data, some_library());
  for (const char* heading :
       {"From the peak to the step", "What the step hangs on", "Roofline by operator", "Load of the network"})
    EXPECT_THAT(html, Not(HasSubstr(heading)));
}

TEST(PlanPage, CarriesItsTraceAsAFileToSave) {
  ReportData data = plan_report();
  data.page->trace = R"({"traceEvents":[{"name":"<a> \"b\""}]})";
  const std::string html = report_html(data, some_library());
  EXPECT_THAT(html, HasSubstr("download=\"trace.json\""));
  EXPECT_THAT(html, HasSubstr("%22name%22:%22%3Ca%3E"));
  EXPECT_EQ(times(report_html(plan_report(), some_library()), "download="), 0U);
}

TEST(PlanPage, AsJsonHasTheSameFigures) {
  const nlohmann::json out = plan_page_json(sample::prediction(), page());
  double sum = 0;
  for (const auto& part : out.at("waterfall")) sum += part.at("seconds").get<double>();
  EXPECT_NEAR(sum, out.at("step_time_s").get<double>(), 1e-12);
  EXPECT_EQ(out.at("operators").size(), 5U);
  EXPECT_EQ(out.at("neighbours")[1].at("code"), "P18");
  EXPECT_EQ(out.at("sensitivities")[0].at("step_time_less_s"), 1.9);
  EXPECT_EQ(out.at("figures").at("evidence"), "published");
  EXPECT_EQ(out.at("figures").at("fits_probability").get<double>() > 0.99, true);
}

TEST(Tornado, DrawsWhatDoesNotFitInAnotherColour) {
  const nlohmann::json spec = nlohmann::json::parse(html::tornado_chart(page(), sample::prediction()).spec);
  std::size_t grey = 0;
  for (const auto& bar : spec["data"][0]["values"]) grey += bar["c"] == "var(--waiting)" ? 1 : 0;
  EXPECT_EQ(grey, 1U) << "the neighbour needs twice the memory";
  EXPECT_EQ(spec["data"][0]["values"].size(), 2 * 2 + 1U) << "two sides of each number, one bar of each split";
}

TEST(Pareto, FillsPlansThatNoneBeatsAndPinsRows) {
  cost::SearchResult search = sample::search();
  search.plans[1].memory_peak_bytes = 10 * kGiB;  // slower than the first, in less memory
  search.plans[2].memory_peak_bytes = 70 * kGiB;  // slower and larger than the first
  const html::Chart chart = html::pareto_chart(search, {});
  const nlohmann::json spec = nlohmann::json::parse(chart.spec);
  EXPECT_EQ(spec["data"][0]["values"][0]["front"], true);
  EXPECT_EQ(spec["data"][0]["values"][1]["front"], true);
  EXPECT_EQ(spec["data"][0]["values"][2]["front"], false);

  ReportData data = plan_report();
  data.search = search;
  data.search_heading = PlanHeading{};
  const std::string html = report_html(data, some_library());
  EXPECT_EQ(times(html, "class=\"pin\""), search.plans.size());
  EXPECT_THAT(html, HasSubstr("aria-label=\"pin row 3\""));
  EXPECT_THAT(html, HasSubstr("P03: heads do not divide by tensor"));
  EXPECT_EQ(times(report_html(data, {}), "class=\"pin\""), 0U) << "without a plot there is nothing to pin to";
}

std::vector<Compared> two() {
  Compared a{"plans/a.yaml", sample::prediction(), page().heading, {}, {}};
  Compared b{"plans/<b>.yaml", sample::prediction(), page().heading, {}, {}};
  b.prediction.spec.micro_batch = 4;
  b.prediction.spec.recompute = plan::Recompute::full;
  b.prediction.step_time_s *= 2;
  b.heading.cluster = "selene-256";
  return {a, b};
}

TEST(Compared, SaysTheFieldsThatDifferAndNoOthers) {
  const Table table = differences_table(two());
  std::vector<std::string> what;
  for (const auto& row : table.rows) what.push_back(row.front());
  EXPECT_THAT(what, testing::ElementsAre("cluster", "micro_batch", "recompute"));
  EXPECT_THAT(table.rows[1], testing::ElementsAre("micro_batch", "1", "4"));
  const Table none = differences_table({two()[0], two()[0]});
  EXPECT_TRUE(none.rows.empty());
  EXPECT_THAT(none.notes.front(), HasSubstr("the same"));
}

TEST(Compared, GivesRatiosToTheFirst) {
  const Table table = compared_table(two());
  const auto step = std::find_if(table.rows.begin(), table.rows.end(),
                                 [](const auto& row) { return row.front() == "step time, predicted"; });
  ASSERT_NE(step, table.rows.end());
  EXPECT_EQ((*step)[1], "1.73 s");
  EXPECT_EQ((*step)[2], "3.46 s (× 2)");
  const nlohmann::json out = compared_json(two());
  EXPECT_DOUBLE_EQ(out.at("items")[1].at("step_time_ratio").get<double>(), 2);
  EXPECT_EQ(out.at("differences").size(), 3U);
  EXPECT_TRUE(compared_json({two()[0]}).is_null());
}

TEST(Compared, BeginsThePageWithWhatDiffers) {
  ReportData data = plan_report();
  data.compared = two();
  const std::string html = report_html(data, some_library());
  const std::size_t first = html.find(">What differs</h2>");
  ASSERT_NE(first, std::string::npos);
  EXPECT_LT(first, html.find("<ul class=\"tiles\">"));
  EXPECT_LT(first, html.find(">Timeline</h2>"));
  EXPECT_THAT(html, HasSubstr("B · &lt;b&gt;.yaml"));
  EXPECT_THAT(html, Not(HasSubstr("<b>.yaml")));
  EXPECT_THAT(html, HasSubstr(">Where the steps go</h2>"));
  EXPECT_THAT(html, HasSubstr(">Memory of the fullest rank</h2>"));
}

TEST(Compared, OfOneFileNameInTwoFoldersHaveTheirFolders) {
  std::vector<Compared> all = two();
  all[0].name = "x/plan.yaml", all[1].name = "y/plan.yaml";
  EXPECT_THAT(short_names(all), testing::ElementsAre("A · x/plan.yaml", "B · y/plan.yaml"));
  all[1].name = "runs/second/";
  EXPECT_THAT(short_names(all), testing::ElementsAre("A · plan.yaml", "B · second"));
}

WholeRun whole_run() {
  WholeRun run;
  run.devices = 16;
  run.devices_per_node = 8;
  run.forecast.asked.failures.mtbf = {86400, "a fleet"};
  run.forecast.asked.restart = {600, "a source"};
  run.forecast.system = {86400, 600, 1, 20};
  run.forecast.now = cost::goodput(600, run.forecast.system);
  run.forecast.best = run.forecast.now;
  run.forecast.failures = 3;
  run.lengths = {{"given", "--tokens", 7e9, 140e9, 1000, 864000, 1234, 3.6e9, 2.1, true},
                 {"best model", "a law", 3e9, 60e9, 0, 0, 0, 0, 0, false}};
  for (const double interval : {60.0, 600.0, 6000.0})
    run.by_interval.emplace_back(interval, cost::goodput(interval, run.forecast.system).useful);
  return run;
}

TEST(WholeRun, SaysDaysMoneyAndEnergyOfThisModelAlone) {
  const Table table = lengths_table(whole_run());
  EXPECT_THAT(table.rows[0], testing::ElementsAre("given", "7.00 B", "140 B", "20", "5.88e+21", "1000", "10", "1234",
                                                  "1000", "2.100"));
  EXPECT_EQ(table.rows[1][6], "—");
  const nlohmann::json out = whole_run_json(whole_run());
  EXPECT_DOUBLE_EQ(out.at("lengths")[0].at("cost_usd").get<double>(), 1234);
  EXPECT_TRUE(out.at("lengths")[1].at("run_time_s").is_null());
  EXPECT_TRUE(out.at("measured").is_null());
}

TEST(WholeRun, CountsFailuresOfANodeAndYear) {
  const Table table = failures_table(whole_run());
  EXPECT_THAT(table.rows[0], testing::ElementsAre("failures of a node a year", "182.6")) << "one a day, over two nodes";
  EXPECT_EQ(table.columns.size(), 2U);
}

TEST(WholeRun, PutsARealRunsRestartsBesideThePrediction) {
  WholeRun run = whole_run();
  run.real = RealRun{"runs/a", 20, 12, 0.1, 2, {"rank 1 was killed", "no room"}, 8, 3, 0.01, 0.2, 0.75};
  const Table table = failures_table(run);
  ASSERT_EQ(table.columns.size(), 3U);
  EXPECT_THAT(table.rows[2], testing::ElementsAre("failures of the run", "3", "2"));
  EXPECT_EQ(table.rows[3][2], "4.00 s");
  EXPECT_THAT(table.notes.back(), HasSubstr("no room"));
  EXPECT_EQ(whole_run_json(run).at("measured").at("restarts"), 2);
}

}  // namespace
}  // namespace orrery::reports
