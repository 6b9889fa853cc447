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
namespace plan_page_test {

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

TEST(Verdict, SaysWhyMoreDevicesGainNothingUnlessTheyDo) {
  const cost::Prediction own = sample::prediction();
  cost::Variation more{"one more node", own, "6 replicas do not share a batch of 64 equally; next useful size 32", ""};
  more.prediction->step_time_s = 2 * own.step_time_s;
  EXPECT_EQ(verdict(more, own), "no gain: 6 replicas do not share a batch of 64 equally; next useful size 32");
  more.prediction->step_time_s = own.step_time_s / 2;
  EXPECT_THAT(verdict(more, own), HasSubstr("faster")) << "another split uses them";
}

TEST(Variations, CarryTheirIntervalAndWhatTheyRestOnWhereThatIsSomethingElse) {
  const cost::Prediction own = sample::prediction();
  PlanHeading heading;
  heading.devices_per_node = 8;
  const auto around = [](double low, double high) { return cost::Spread{"", true, {low, high}, {0.9, 1.1}, 5}; };
  heading.evidence = {{"ours", "published", "from 5 runs of ours", around(0.5, 2), around(0.5, 2)},
                      {"theirs", "uncalibrated", "no run of theirs", around(0.25, 4), around(0.25, 4)}};
  heading.by_zero = {0, 0, 0, 1};
  cost::Variation same{"micro-batch 2", own, "", ""}, other{"ZeRO 3", own, "", ""};
  same.prediction->spec.states.zero_stage = 1, other.prediction->spec.states.zero_stage = 3;
  const cost::Variation none{"VP 3", std::nullopt, "chunks are not whole", "P18"};
  const std::vector<cost::Variation> all = {same, other, none};
  const std::string text = text_of(variations_table("Neighbours", all, own, heading, 0), {true, false, 0});
  EXPECT_THAT(text, HasSubstr("4 of 5 runs"));
  EXPECT_THAT(text, HasSubstr("ZeRO 3: by theirs; no run of theirs"));
  EXPECT_THAT(text, Not(HasSubstr("by ours")));
  const nlohmann::json json = variations_json(all, own, heading);
  EXPECT_DOUBLE_EQ(json[0].at("step_time_interval_s")[1].get<double>(), 2 * own.step_time_s);
  EXPECT_DOUBLE_EQ(json[1].at("step_time_interval_s")[0].get<double>(), own.step_time_s / 4);
  EXPECT_EQ(json[1].at("evidence"), "uncalibrated");
  EXPECT_TRUE(json[2].at("step_time_interval_s").is_null());
  EXPECT_THAT(text_of(variations_table("Neighbours", all, own, {}, 0), {}), Not(HasSubstr("4 of 5")))
      << "of cores no run tells";
}

TEST(Roofline, NamesNoOperatorOnTopOfAnother) {
  cost::Operators operators = sample::operators();
  operators.rows.clear();
  operators.rows.push_back({"grouped_matmul", "forward", 1, 2.0, 4e14, 5e11});
  operators.rows.push_back({"grouped_weight_grad", "backward", 1, 1.9, 3.9e14, 6e11});
  operators.rows.push_back({"gelu", "forward", 1, 1.5, 1e11, 1e12});
  std::vector<std::string> labels;
  for (const nlohmann::json& dot : sample::rows_of(html::roofline_chart(operators), "operators"))
    labels.push_back(dot.at("label").get<std::string>());
  EXPECT_THAT(labels, ::testing::ElementsAre("grouped_matmul", "", "gelu"));
}

TEST(ComparedTable, SaysWhichThroughputWasMeasured) {
  std::vector<Compared> all = sample::compared();
  EXPECT_THAT(text_of(compared_table(all), {}), Not(HasSubstr("tokens/s, measured")));
  all[0].run = sample::runs().front();
  const std::string text = text_of(compared_table(all), {});
  EXPECT_THAT(text, HasSubstr("tokens/s, measured"));
  EXPECT_THAT(text, HasSubstr("tokens/s, predicted"));
}

TEST(Waterfall, PartsAddUpToTheStep) {
  const cost::Prediction p = sample::prediction();
  const auto parts = waterfall_of(p, sample::operators());
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
  EXPECT_NEAR(seconds("attention under the mask"), -0.02, 1e-12);
  EXPECT_NEAR(seconds("matrix products below peak"), 0.75 - 0.54, 1e-12);
  EXPECT_NEAR(seconds("attention below peak"), 0.06, 1e-12);
  EXPECT_DOUBLE_EQ(seconds("pipeline bubble"), p.breakdown.bubble);
  EXPECT_DOUBLE_EQ(seconds("tensor communication"), p.breakdown.tensor_communication);
}

TEST(Waterfall, OfAMachineWithoutAPeakIsNone) {
  cost::Operators unknown = sample::operators();
  unknown.peak_flops = 0;
  EXPECT_TRUE(waterfall_of(sample::prediction(), unknown).empty());
  cost::Prediction p = sample::prediction();
  p.mfu = 0;
  EXPECT_TRUE(waterfall_of(p, sample::operators()).empty());
}

TEST(PlanPage, HasEveryPartOfAPlan) {
  const std::string html = report_html(sample::plan_report(), some_library());
  for (const char* heading :
       {"From the peak to the step", "Timeline", "Where the step goes", "Memory by stage", "What the step depends on",
        "Roofline by operator", "Topology with the load of its links", "Load of the network", "Provenance"})
    EXPECT_THAT(html, HasSubstr(std::string(">") + heading + "</h2>"));
  EXPECT_THAT(html, HasSubstr("four of five runs: 1.56–\u20601.92\u00a0s"));
  EXPECT_THAT(html, HasSubstr("fits with probability 1.00"));
  EXPECT_THAT(html, HasSubstr("Evidence (published): from 38 published runs &lt;of it&gt;."));
  EXPECT_THAT(html, HasSubstr("Software: megatron-core."));
  EXPECT_THAT(html, HasSubstr("a &lt;source&gt;")) << "each coefficient says where it comes from";
  EXPECT_THAT(html, HasSubstr("breaks P18: chunks are not whole"));
  EXPECT_EQ(html, report_html(sample::plan_report(), some_library()));
}

TEST(PlanPage, WithoutItsPartsLeavesThemOut) {
  ReportData data = sample::plan_report();
  data.page->sensitivities.clear();
  data.page->neighbours.clear();
  data.page->operators = {};
  data.prediction->links.clear();
  const std::string html = report_html(data, some_library());
  for (const char* heading :
       {"From the peak to the step", "What the step depends on", "Roofline by operator", "Load of the network"})
    EXPECT_THAT(html, Not(HasSubstr(heading)));
}

TEST(PlanPage, CarriesItsTraceAsAFileToSave) {
  ReportData data = sample::plan_report();
  data.page->trace = R"({"traceEvents":[{"name":"<a> \"b\""}]})";
  const std::string html = report_html(data, some_library());
  EXPECT_THAT(html, HasSubstr("download=\"trace.json\""));
  EXPECT_THAT(html, HasSubstr("%22name%22:%22%3Ca%3E"));
  EXPECT_EQ(times(report_html(sample::plan_report(), some_library()), "download="), 0U);
}

TEST(PlanPage, AsJsonHasTheSameFigures) {
  const nlohmann::json out = plan_page_json(sample::prediction(), sample::plan_page());
  double sum = 0;
  for (const auto& part : out.at("waterfall")) sum += part.at("seconds").get<double>();
  EXPECT_NEAR(sum, out.at("step_time_s").get<double>(), 1e-12);
  EXPECT_EQ(out.at("operators").size(), 5U);
  EXPECT_EQ(out.at("neighbours")[1].at("code"), "P18");
  EXPECT_EQ(out.at("sensitivities")[0].at("step_time_less_s"), 1.9);
  EXPECT_EQ(out.at("figures").at("evidence"), "published");
  EXPECT_EQ(out.at("figures").at("fits_probability").get<double>() > 0.99, true);
}

TEST(Topology, DrawsALineForEachKindOfLinkAsWideAsItsLoad) {
  const html::Chart chart = html::topology_chart(sample::plan_page().topology, "selene <128>");
  const nlohmann::json lines = sample::rows_of(chart, "lines");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["c"], "var(--axis)") << "nothing crosses it";
  EXPECT_GT(lines[0]["w"].get<double>(), lines[2]["w"].get<double>()) << "31 % against 22 %";
  EXPECT_EQ(sample::rows_of(chart, "boxes").size(), 4U);
  EXPECT_EQ(chart.data.front().rows[1][4], "—");
}

TEST(Topology, OfAClusterCountsItsTiersAndLeavesOutWhatNoMessageCrosses) {
  clusters::Cluster cluster;
  using clusters::VertexKind;
  const auto add = [&](VertexKind kind) {
    return boost::add_vertex(clusters::Vertex{kind, "", 0, -1, {}}, cluster.graph.edit());
  };
  const auto a = add(VertexKind::device), b = add(VertexKind::device), both = add(VertexKind::nvswitch);
  const auto drive = add(VertexKind::nvme), leaf = add(VertexKind::leaf), spine = add(VertexKind::spine);
  const auto join = [&](auto x, auto y, clusters::LinkKind kind) {
    boost::add_edge(x, y, clusters::Link{kind, base::BytesPerSecond{1e9}, {}}, cluster.graph.edit());
  };
  join(a, both, clusters::LinkKind::nvlink);
  join(both, b, clusters::LinkKind::nvlink);
  join(a, drive, clusters::LinkKind::pcie);
  join(spine, leaf, clusters::LinkKind::network);
  const Topology topology = topology_of(cluster, {{"leaf-spine", 1e9, 0.1, 0.2}});
  ASSERT_EQ(topology.links.size(), 2U);
  EXPECT_EQ(topology.links[0].name, "nvlink");
  EXPECT_EQ(topology.links[0].count, 2);
  EXPECT_DOUBLE_EQ(topology.links[0].bandwidth, 1e9);
  EXPECT_FALSE(topology.links[0].load);
  EXPECT_EQ(topology.links[1].name, "leaf-spine");
  EXPECT_DOUBLE_EQ(topology.links[1].load.value().peak_utilisation, 0.2);
  EXPECT_EQ(topology.tiers.size(), 4U) << "no drives";
  EXPECT_EQ(topology.tiers[0], std::make_pair(VertexKind::device, std::int64_t{2}));
}

TEST(Tornado, DrawsWhatDoesNotFitInAnotherColour) {
  const nlohmann::json bars = sample::rows_of(html::tornado_chart(sample::plan_page(), sample::prediction()), "bars");
  std::size_t grey = 0;
  for (const auto& bar : bars) grey += bar["c"] == "var(--waiting)" ? 1 : 0;
  EXPECT_EQ(grey, 1U) << "the neighbour needs twice the memory";
  EXPECT_EQ(bars.size(), 2 * 2 + 1U) << "two sides of each number, one bar of each split";
}

TEST(Pareto, FillsPlansThatNoneBeatsAndPinsRows) {
  cost::SearchResult search = sample::search();
  search.plans[1].memory_peak_bytes = 10 * kGiB;  // slower than the first, in less memory
  search.plans[2].memory_peak_bytes = 70 * kGiB;  // slower and larger than the first
  const html::Chart chart = html::pareto_chart(search, {});
  const nlohmann::json plans = sample::rows_of(chart, "plans");
  EXPECT_EQ(plans[0]["front"], true);
  EXPECT_EQ(plans[1]["front"], true);
  EXPECT_EQ(plans[2]["front"], false);

  ReportData data = sample::plan_report();
  data.search = search;
  data.search_heading = PlanHeading{};
  const std::string html = report_html(data, some_library());
  EXPECT_EQ(times(html, "class=\"pin\""), search.plans.size());
  EXPECT_THAT(html, HasSubstr("aria-label=\"pin row 3\""));
  EXPECT_THAT(html, HasSubstr("P03: heads do not divide by tensor"));
  EXPECT_EQ(times(report_html(data, {}), "class=\"pin\""), 0U) << "without a plot there is nothing to pin to";
}

TEST(Compared, SaysTheFieldsThatDifferAndNoOthers) {
  const Table table = differences_table(sample::compared());
  std::vector<std::string> what;
  for (const auto& row : table.rows) what.push_back(row.front());
  EXPECT_THAT(what, testing::ElementsAre("cluster", "micro_batch", "recompute"));
  EXPECT_THAT(table.rows[1], testing::ElementsAre("micro_batch", "1", "4"));
  const Table none = differences_table({sample::compared()[0], sample::compared()[0]});
  EXPECT_TRUE(none.rows.empty());
  EXPECT_THAT(none.notes.front(), HasSubstr("the same"));
}

TEST(Compared, CountsWhatRepeatsInALongListForReadersAlone) {
  std::vector<Compared> all = sample::compared();
  all[0].prediction.spec.stages.layers_per_stage = {2, 2, 2, 2};
  all[1].prediction.spec.stages.layers_per_stage = {2, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto row_of = [](const auto& rows) {
    return *std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.front() == "layers_per_stage"; });
  };
  const auto row = row_of(differences_table(all).rows);
  EXPECT_EQ(row[1], "[2, 2, 2, 2]");
  EXPECT_EQ(row[2], "[2, 1 × 8]");
  EXPECT_THAT(compared_json(all).dump(), HasSubstr("[2, 1, 1, 1, 1, 1, 1, 1, 1]"));
}

TEST(Compared, GivesRatiosToTheFirst) {
  const Table table = compared_table(sample::compared());
  const auto step = std::find_if(table.rows.begin(), table.rows.end(),
                                 [](const auto& row) { return row.front() == "step time, predicted"; });
  ASSERT_NE(step, table.rows.end());
  EXPECT_EQ((*step)[1], "1.73 s");
  EXPECT_EQ((*step)[2], "3.46 s (× 2.000)");
  const nlohmann::json out = compared_json(sample::compared());
  EXPECT_DOUBLE_EQ(out.at("items")[1].at("step_time_ratio").get<double>(), 2);
  EXPECT_EQ(out.at("differences").size(), 3U);
  EXPECT_TRUE(compared_json({sample::compared()[0]}).is_null());
}

TEST(Compared, BeginsThePageWithWhatDiffers) {
  ReportData data = sample::plan_report();
  data.compared = sample::compared();
  const std::string html = report_html(data, some_library());
  const std::size_t first = html.find(">What differs</h2>");
  ASSERT_NE(first, std::string::npos);
  EXPECT_LT(first, html.find("<ul class=\"tiles\">"));
  EXPECT_LT(first, html.find(">Timeline</h2>"));
  EXPECT_THAT(html, HasSubstr("B · &lt;b&gt;.yaml"));
  EXPECT_THAT(html, Not(HasSubstr("<b>.yaml")));
  EXPECT_THAT(html, HasSubstr(">Where the steps go</h2>"));
  EXPECT_THAT(html, HasSubstr(">Memory of the fullest rank</h2>"));
  const std::size_t full = html.find("<h2 class=\"full\">In full: ");
  ASSERT_NE(full, std::string::npos) << "of which of them the figures are";
  EXPECT_LT(full, html.find("<ul class=\"tiles\">"));
}

TEST(Compared, DrawsTheirTimelinesOnOneAxis) {
  std::vector<Compared> all = sample::compared();
  EXPECT_FALSE(html::compared_timelines_chart(all)) << "none has one";
  for (Compared& one : all) {
    one.schedule = sample::schedule();
    one.timeline = sample::timeline(*one.schedule, plan::Origin::predicted);
  }
  const auto chart = html::compared_timelines_chart(all);
  ASSERT_TRUE(chart);
  const nlohmann::json panels = sample::rows_of(*chart, "panels");
  ASSERT_EQ(panels.size(), 2U);
  EXPECT_EQ(panels[1]["title"].get<std::string>().rfind("B · <b>.yaml · Predicted", 0), 0U);
  EXPECT_EQ(panels[0]["spans"], panels[1]["spans"]) << "of equal timelines";
}

TEST(Compared, LeavesOutACapacityThatWouldHideTheBars) {
  std::vector<Compared> all = sample::compared();
  const auto has_mark = [&] {
    const html::Chart chart = html::compared_memory_chart(all);
    return std::any_of(chart.legend.begin(), chart.legend.end(), [](const auto& e) { return e.name == "capacity"; });
  };
  EXPECT_TRUE(has_mark());
  for (Compared& one : all) one.prediction.memory_capacity_bytes *= 1000;
  EXPECT_FALSE(has_mark());
}

TEST(Compared, SaysEvidenceThatAllShareOnce) {
  const Table table = compared_table(sample::compared());
  EXPECT_EQ(std::count_if(table.notes.begin(), table.notes.end(),
                          [](const std::string& note) { return note.rfind("Evidence for", 0) == 0; }),
            1);
}

TEST(Compared, OfOneFileNameInTwoFoldersHaveTheirFolders) {
  std::vector<Compared> all = sample::compared();
  all[0].name = "x/plan.yaml", all[1].name = "y/plan.yaml";
  EXPECT_THAT(short_names(all), testing::ElementsAre("A · x/plan.yaml", "B · y/plan.yaml"));
  all[1].name = "runs/second/";
  EXPECT_THAT(short_names(all), testing::ElementsAre("A · plan.yaml", "B · second"));
}

TEST(WholeRun, SaysDaysMoneyAndEnergyOfThisModelAlone) {
  const Table table = lengths_table(sample::whole_run());
  EXPECT_THAT(table.rows[0], testing::ElementsAre("given", "7.00 B", "140 B", "20", "5.88e+21", "1,000", "10.0",
                                                  "1,230", "1,000", "2.100"));
  EXPECT_EQ(table.rows[1][6], "—");
  const nlohmann::json out = whole_run_json(sample::whole_run());
  EXPECT_DOUBLE_EQ(out.at("lengths")[0].at("cost_usd").get<double>(), 1234);
  EXPECT_TRUE(out.at("lengths")[1].at("run_time_s").is_null());
  EXPECT_TRUE(out.at("measured").is_null());
}

TEST(WholeRun, CountsFailuresOfANodeAndYear) {
  const Table table = failures_table(sample::whole_run());
  EXPECT_THAT(table.rows[0], testing::ElementsAre("failures per node and year", "180")) << "one a day, over two nodes";
  EXPECT_EQ(table.columns.size(), 2U);
}

TEST(WholeRun, PutsARealRunsRestartsBesideThePrediction) {
  WholeRun run = sample::whole_run();
  run.real = RealRun{"runs/a", 20, 12, 0.1, 2, {"rank 1 was killed", "no room"}, 8, 3, 0.01, 0.2, 0.75};
  const Table table = failures_table(run);
  ASSERT_EQ(table.columns.size(), 3U);
  EXPECT_THAT(table.rows[2], testing::ElementsAre("failures of the run", "3.0", "2"));
  EXPECT_EQ(table.rows[3][2], "4.00 s");
  EXPECT_THAT(table.notes.back(), HasSubstr("no room"));
  EXPECT_EQ(whole_run_json(run).at("measured").at("restarts"), 2);
}

}  // namespace plan_page_test
}  // namespace orrery::reports
